"""quire's benchmarks: `python -m bench` runs them all and stores the results."""
