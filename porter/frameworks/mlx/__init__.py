"""MLX: what porter writes modules of mlx.nn with, and runs them. MLX is imported only to run."""
