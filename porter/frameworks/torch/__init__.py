"""PyTorch: how its code names tensors, what runs its modules, and its ports."""
