"""What `porter recipe check` finds in a recipe without weights."""
