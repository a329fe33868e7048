"""What each route does: parse, one library call, tell."""
