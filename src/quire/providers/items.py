"""Items of the Responses API: who made them, and which of them are one message together."""

from collections.abc import Iterable, Iterator
from typing import Any

from quire.providers.envelopes import Entry

Values = dict[str, Any]

_CALLS = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "shell_call",
        "tool_search_call",
    }
)
_OUTPUTS = frozenset({f"{call}_output" for call in _CALLS} | {"tool_search_output"})


def runs(items: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The items, those together that are one message."""
    run: list[Entry] = []
    spoke = called = False
    for item in items:
        apart = not by_assistant(item.value) or (spoke and not called and _speaks(item.value))
        if run and (apart or not by_assistant(run[-1].value) or item.meta.get("id") != run[-1].meta.get("id")):
            yield run
            run, spoke, called = [], False, False
        run.append(item)
        spoke, called = spoke or is_message(item.value), called or calls(item.value)
    if run:
        yield run


def kind_of(value: Values) -> str:
    """The type of the item; "" if it has none."""
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def is_message(value: Values) -> bool:
    """Whether the item is a message with a role."""
    return "role" in value and value.get("type") in (None, "message")


def calls(value: Values) -> bool:
    """Whether the item is a call that needs an answer."""
    return kind_of(value) in _CALLS and not _is_hosted(value)


def answers(value: Values) -> bool:
    """Whether the item is the answer to a call."""
    return kind_of(value) in _OUTPUTS and not _is_hosted(value)


def _is_hosted(value: Values) -> bool:
    """Whether a search for tools ran at OpenAI: call and output have no id and need no answer."""
    return kind_of(value).startswith("tool_search_") and value.get("call_id") is None


def by_assistant(value: Values) -> bool:
    """Whether the item is the model's doing."""
    return value["role"] == "assistant" if is_message(value) else not answers(value)


def _speaks(value: Values) -> bool:
    return is_message(value) or kind_of(value) == "reasoning"
