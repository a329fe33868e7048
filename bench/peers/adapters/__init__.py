"""One small module per peer. Each imports its peer, so it is loaded only in the peer's environment."""
