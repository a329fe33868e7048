"""Modules of the larger examples."""
