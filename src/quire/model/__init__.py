"""Values: pages, messages, tokens, text, media and time. No I/O."""
