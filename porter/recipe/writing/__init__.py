"""A graph with blocks as the steps of a recipe."""
