"""What a port is compared with."""
