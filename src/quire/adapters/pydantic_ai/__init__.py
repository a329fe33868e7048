"""pydantic-ai: a capability that shows the model a view, and a toolset. `pip install 'quire[pydantic-ai]'`."""

from quire.adapters.pydantic_ai.capability import QuireCapability, QuireToolset

__all__ = ["QuireCapability", "QuireToolset"]
