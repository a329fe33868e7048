"""The error for a framework that is not installed names it and the install command."""

import sys
from importlib import import_module

import pytest

import quire
from quire.mcp_server import server


@pytest.mark.parametrize(
    ("adapter", "framework", "extra"),
    [
        ("langchain", "langchain_core.messages", "langchain"),
        ("langgraph", "langgraph.store.base", "langgraph"),
        ("pydantic_ai", "pydantic_ai.messages", "pydantic-ai"),
        ("openai_agents", "agents.memory", "openai-agents"),
        ("openai", "openai.lib.streaming.chat", "openai"),
        ("anthropic", "anthropic.lib.tools", "anthropic"),
    ],
)
def test_what_to_install_is_said(adapter: str, framework: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(f"quire.adapters.{adapter}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(quire.InvalidOperation, match=rf"pip install .*\[{extra}\]'"):
        import_module(f"quire.adapters.{adapter}")
    with pytest.raises(ImportError, match=rf"\[{extra}\]"):  # optional imports catch ImportError
        import_module(f"quire.adapters.{adapter}")


@pytest.mark.parametrize("missing", ["mcp_types", "mcp.server.models"])
def test_the_sdk_of_the_mcp_server_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("quire.mcp_server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"needs mcp: pip install .*\[mcp\]'") as told:
        server(quire.open("memory:"))
    assert isinstance(told.value, quire.InvalidOperation)
