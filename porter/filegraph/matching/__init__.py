"""Layers that a file says with several ops, found among them."""
