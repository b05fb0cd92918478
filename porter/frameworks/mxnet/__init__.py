"""MXNet. It is never run: porter's own engine runs its symbols."""
