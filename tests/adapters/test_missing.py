"""The error for a framework that is not installed names it and the install command."""

import sys
from importlib import import_module

import pytest

import quire
import quire.errors


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
    with pytest.raises(quire.errors.NotInstalled) as told:
        import_module(f"quire.adapters.{adapter}")
    assert isinstance(told.value, ImportError)  # optional imports catch it
    assert f"[{extra}]" in str(told.value)
