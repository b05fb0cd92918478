"""Runs the graphs of other people's Keras files, from a closed list of layers and operations."""
