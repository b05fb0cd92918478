"""The command line: the typer app, and what it prints."""
