"""Finding pages and recalling them: words, queries, scores, indexes, vectors.

Nothing here writes to a context: an index is derived from the pages, knows the version it stands at, and catches up
before it answers.
"""
