"""Folding: old exchanges gathered under chapters, so that the view fits its budget."""
