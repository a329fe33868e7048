"""Helpers of the scripted models: a parsed view, and messages to answer with."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Call = tuple[str, dict[str, Any]]


class PastCall(NamedTuple):
    """A call that the view shows word for word, and its result."""

    name: str
    arguments: dict[str, Any]
    result: str


class ParsedView:
    """Messages in the form of OpenAI's chat completions: the last request, and every call with its result.

    Blocks of folded lines start with a bracket and live windows with `<`: neither is a request of the user.
    """

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        asked = max(n for n, said in enumerate(messages) if said["role"] == "user" and said["content"][0] not in "[<")
        self.asked = str(messages[asked]["content"])
        self.said_before = next(
            (str(said["content"]) for said in reversed(messages[:asked]) if said["role"] == "assistant"), ""
        )
        self.since = list(_seen(messages[asked:]))
        self.seen = [*_seen(messages[:asked]), *self.since]
        self.text = "\n".join(str(said.get("content")) for said in messages)


class MessageBuilder:
    """Builds a message from a decision: calls or an answer."""

    def __init__(self) -> None:
        self._calls = 0

    def build(self, decided: str | list[Call]) -> dict[str, Any]:
        """Return the message in OpenAI's form."""
        if isinstance(decided, str):
            return {"role": "assistant", "content": decided}
        return {"role": "assistant", "content": None, "tool_calls": [self._call(*call) for call in decided]}

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return {"id": f"call_{self._calls}", "type": "function", "function": function}


def _seen(messages: list[dict[str, Any]]) -> Iterator[PastCall]:
    """Return the calls with their results."""
    results = {said["tool_call_id"]: str(said["content"]) for said in messages if said["role"] == "tool"}
    for made in (call for said in messages for call in said.get("tool_calls") or ()):
        yield PastCall(made["function"]["name"], json.loads(made["function"]["arguments"]), results[made["id"]])


def short(text: str, most: int = 70) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def schema(name: str, description: str, **parameters: str) -> dict[str, Any]:
    """Return the schema of a tool with text arguments, in the form of OpenAI's chat completions."""
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    shape = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": shape}}
