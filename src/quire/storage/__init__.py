"""Backends: one small protocol (`base`), the stores that speak it, opening one by URL, copying between two."""
