"""The view: what the model sees, drawn from pages. It writes nothing."""
