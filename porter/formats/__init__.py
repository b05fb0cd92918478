"""How files say their tensors and their graphs: one module or folder for each kind of file."""
