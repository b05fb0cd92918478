"""`model.py` of a port: the plan as a person would write it, in the words of a framework's `Language`."""
