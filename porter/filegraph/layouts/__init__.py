"""How a file's tensors hold the values of its graph: sizes, axes, and the ops that lay a value out."""
