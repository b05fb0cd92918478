"""What is ported: from what a user names to an opened source."""
