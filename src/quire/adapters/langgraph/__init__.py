"""LangGraph: its long-term store. `pip install 'quire[langgraph]'`. The middleware is in `quire.adapters.langchain`."""

from quire.adapters.langgraph.store import QuireStore

__all__ = ["QuireStore"]
