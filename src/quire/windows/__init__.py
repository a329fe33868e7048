"""Windows: live state that a model sees once, always fresh, and acts on."""
