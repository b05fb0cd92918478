"""`porter report`: a port's records as one HTML page."""
