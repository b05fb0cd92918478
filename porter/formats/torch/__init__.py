"""PyTorch's .pth and .pt."""
