"""From a source to a port: open, plan, write, prove, record."""
