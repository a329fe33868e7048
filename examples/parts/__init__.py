"""What the larger examples are made of, beside their main files."""
