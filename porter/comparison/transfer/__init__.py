"""Tensors of a source into a class that exists: which goes where, and the converter that a person would
write.
"""
