"""Search and recall: tokenizer, queries, scores, indexes, vectors.

Nothing here changes the pages of a context. An index is derived from the pages, knows the version it reflects, and
catches up before it answers.
"""
