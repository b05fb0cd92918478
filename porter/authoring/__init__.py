"""What helps somebody who writes recipes: check/ finds mistakes, draft/ writes a graph as YAML."""
