"""A conversion makes a port of a source: it opens the source, plans, writes, proves and records."""
