"""Tensors of a source into a class that exists: which goes where, and the converter that a person would
write.
"""

RECORD = "into.json"
"""The table of a transfer, and the comparison that proves it."""
SOURCE_FILE = "source.safetensors"
"""The source's tensors, where its own file needs a framework to be read."""
