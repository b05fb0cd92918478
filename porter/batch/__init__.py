"""Many ports from one list, each in a process of its own."""
