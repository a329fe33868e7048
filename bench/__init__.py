"""quire's benchmarks: `python -m bench` runs them all and writes down what it measured."""
