"""What several adapters are made of: opening a context, following a list, many contexts, turns with a model."""
