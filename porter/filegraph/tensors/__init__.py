"""Tensors with numpy's operations, of which readers of operators speak, and what each operation makes."""
