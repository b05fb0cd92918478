"""TF-slim's own networks, as the implementation that ports of its weights are compared with."""
