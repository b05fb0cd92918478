"""numpy's .npz: TensorNets' weights, and plain archives of arrays."""
