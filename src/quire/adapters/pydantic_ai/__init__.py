"""pydantic-ai: a capability that shows the model a view, and a toolset. It needs the extra `pydantic-ai`."""

from quire.adapters.pydantic_ai.capability import QuireCapability, QuireToolset

__all__ = ["QuireCapability", "QuireToolset"]
