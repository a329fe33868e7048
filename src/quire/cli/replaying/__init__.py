"""Playing a conversation call by call: a view at every model call, and beside it what a sliding window would send."""
