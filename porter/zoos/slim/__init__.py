"""TF-slim's own networks, and TensorNets' on its layers, as the implementations that ports of their weights
are compared with.
"""
