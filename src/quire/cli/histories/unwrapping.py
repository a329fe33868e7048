"""What stands in a line of a log: a message, a whole conversation, or something else, which is told.

| shape                                              | whose                                                        |
|----------------------------------------------------|--------------------------------------------------------------|
| `{"role", "content"}`, items with a `type`         | messages of OpenAI and Anthropic, items of Responses         |
| `{"system", "messages"}`, `{"instructions", "input"}` | request bodies; `{"id", "messages"}` of recorded runs     |
| `{"choices"}`, `{"output"}`                        | whole responses                                              |
| `{"type", "message": {"role", …}}`                 | Claude Code's sessions, where an answer may take several lines |
| `{"type", "payload": {…}}`                         | Codex's sessions                                             |
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Values = dict[str, Any]

_LISTS = ("messages", "history", "conversation", "items")
_ITEMS = frozenset({"message", "reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
_ITEM_ENDS = ("_call", "_call_output")
_ASIDE = {"isSidechain": "a subagent's message", "isApiErrorMessage": "an error of the provider's"}


class Skip(NamedTuple):
    """Something that is no message of the conversation: in which line, and what it is."""

    line: int
    what: str


class Whole(NamedTuple):
    """A whole conversation in one value: its name, if it has one, and its messages."""

    name: str
    messages: list[object]


class Piece(NamedTuple):
    """A message; those with the same `joint`, one after the other, are pieces of one answer."""

    value: object
    joint: str = ""


def unwrap(value: object, line: int) -> Iterator[Whole | Piece | Skip]:
    """What a JSON value of a log holds."""
    if isinstance(value, list):
        if value and all(isinstance(inner, list) for inner in value):  # several conversations
            yield from (Whole("", inner) for inner in value)
            return
        for inner in value:
            yield from unwrap(inner, line)
    elif not isinstance(value, dict):
        yield Skip(line, f"no message but {type(value).__name__}")
    elif (found := _whole(value)) is not None:
        yield found
    elif isinstance(value.get("message"), dict) and "finish_reason" not in value and "role" not in value:
        yield _session_line(value, line)
    elif isinstance(value.get("payload"), dict) and isinstance(value.get("type"), str):
        yield _recorded(value["type"], value["payload"], line)
    elif _is_message(value):
        yield Piece(value)
    elif isinstance(value.get("instructions"), str) and value["instructions"]:  # the first line of an older session
        yield Piece({"role": "system", "content": value["instructions"]})
    else:
        yield Skip(line, _kind_of(value))


def joined(pieces: list[Values]) -> Values:
    """The pieces of one answer as one message."""
    content = [block for piece in pieces for block in _blocks(piece.get("content"))]
    return {**pieces[-1], "content": content}


def _blocks(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())  # type: ignore[call-overload]


def _whole(value: Values) -> Whole | None:
    """The conversation in a request body or in a recorded run; None if there is none."""
    if "role" in value:
        return None
    system = value.get("system") or value.get("instructions")
    prompt: list[object] = [{"role": "system", "content": system}] if system else []
    name = str(value.get("id") or value.get("name") or "")
    for key in _LISTS:
        if isinstance(value.get(key), list):
            return Whole(name, [*prompt, *value[key]])
    given = value.get("input")
    if isinstance(given, list) and "type" not in value:
        return Whole(name, [*prompt, *given])
    if isinstance(given, str) and "type" not in value:
        return Whole(name, [*prompt, {"role": "user", "content": given}])
    return None


def _session_line(value: Values, line: int) -> Piece | Skip:
    """A line with a message inside."""
    aside = next((words for key, words in _ASIDE.items() if value.get(key)), None)
    if aside is not None:
        return Skip(line, aside)
    message = value["message"]
    if "role" not in message:
        return Skip(line, _kind_of(value))
    joint = message.get("id") if message["role"] == "assistant" else None
    return Piece(message, joint if isinstance(joint, str) else "")


def _recorded(kind: str, payload: Values, line: int) -> Piece | Skip:
    """A line of a session that holds items of the Responses API among other records."""
    if kind == "response_item" and _is_message(payload):
        return Piece(payload)
    if kind == "session_meta":
        instructions = payload.get("instructions") or payload.get("base_instructions")
        if isinstance(instructions, Mapping):
            instructions = instructions.get("text")
        if isinstance(instructions, str) and instructions:
            return Piece({"role": "system", "content": instructions})
    inner = payload.get("type")
    return Skip(line, f"{kind} {inner}" if isinstance(inner, str) else kind)


def _is_message(value: Values) -> bool:
    kind = value.get("type")
    if "role" in value or isinstance(value.get("choices"), list) or isinstance(value.get("output"), list):
        return True
    return isinstance(kind, str) and (kind in _ITEMS or kind.endswith(_ITEM_ENDS))


def _kind_of(value: Values) -> str:
    kind = value.get("type") or value.get("record_type")
    if isinstance(kind, str):
        return f"no message but {kind!r}"
    return f"no message: an object with {', '.join(map(repr, list(value)[:4])) or 'nothing in it'}"
