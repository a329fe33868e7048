"""What an adapter adds to the framework and to the same calls of quire made by hand."""
