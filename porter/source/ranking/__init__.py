"""The variants that a file could be, best first."""
