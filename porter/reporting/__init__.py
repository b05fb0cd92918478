"""`porter report`: what a port's records hold, as one HTML page."""
