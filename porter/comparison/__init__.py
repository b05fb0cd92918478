"""Whether two models are the same function, and what differs if they are not."""
