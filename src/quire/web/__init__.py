"""What every server of ours shares: where it listens, the token, and who may come in."""
