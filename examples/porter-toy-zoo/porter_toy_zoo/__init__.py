"""A zoo of one network: its recipe, and its own code to prove ports against."""
