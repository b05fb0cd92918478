"""A file fitted to its recipe: by the names of its tensors, or by the graph that it carries."""
