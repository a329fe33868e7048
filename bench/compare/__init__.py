"""Compare two versions of quire: install both, measure them alternately in one run, print a table of ratios."""
