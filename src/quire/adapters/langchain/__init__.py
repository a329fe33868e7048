"""LangChain: a chat message history, a middleware for agents, and tools. It needs the extra `langchain`."""

from quire.adapters.langchain.history import QuireChatMessageHistory
from quire.adapters.langchain.middleware import QuireMiddleware, tools_of

__all__ = ["QuireChatMessageHistory", "QuireMiddleware", "tools_of"]
