"""Adapters: quire in the frameworks that agents already live in. Each is thin, and its framework is imported late."""
