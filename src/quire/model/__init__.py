"""Values without I/O: pages, messages, tokens, text, media and clocks."""
