"""The version of this package, which pyproject.toml, the command line and the record of a port read here."""

__version__ = "0.1.0"
