"""Other people's implementations, run as references."""
