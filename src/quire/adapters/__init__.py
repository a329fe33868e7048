"""Adapters: they use quire in other agent frameworks. Each framework is imported only with its adapter."""
