"""One small module for every peer; each imports its peer, so it is loaded only in the environment that has it."""
