"""What is ported: a file or a port, opened, with the references that prove its port."""
