"""Records, state and the write path: plan, commit, apply."""
