"""Files of conversations: JSON or JSON Lines of providers' messages, requests, and session logs of coding agents.

| shape                                              | source                                                       |
|----------------------------------------------------|--------------------------------------------------------------|
| `{"role", "content"}`, items with a `type`         | messages of OpenAI and Anthropic, items of Responses         |
| `{"system", "messages"}`, `{"instructions", "input"}` | request bodies; `{"id", "messages"}` of recorded runs     |
| `{"choices"}`, `{"output"}`                        | responses                                                    |
| `{"type", "message": {"role", …}}`                 | sessions of Claude Code; an answer may take several lines    |
| `{"type", "payload": {…}}`                         | sessions of Codex                                            |
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quire.errors import InvalidValue, short_repr

_Object = dict[str, Any]
_GZIP = b"\x1f\x8b"
_STDIN = "-"
_EXPORT = b"quire export "
_SQLITE = b"SQLite format 3\0"
_ADDRESSES = ("sqlite:", "file:", "postgresql:", "postgres:", "s3:")
_HEADER = 4_096
_LISTS = ("messages", "history", "conversation", "items")
_ITEMS = frozenset({"message", "reasoning", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
_ITEM_ENDS = ("_call", "_call_output")
_IGNORED = {"isSidechain": "a subagent's message", "isApiErrorMessage": "an error of the provider's"}

FileKind = Literal["messages", "export", "document"]
"""Messages in any shape, a context from `export`, or the JSON document of a context."""


class LoggedConversation(NamedTuple):
    """The messages of one conversation as the file has them, and its name if it has one."""

    name: str
    messages: list[object]


class SkippedRecord(NamedTuple):
    """A record that is not a message of the conversation: its line, and what it is."""

    line: int
    what: str


class _Piece(NamedTuple):
    """A message. Consecutive pieces with the same `answer` id are parts of one message."""

    value: object
    answer: str = ""


class LogFile(NamedTuple):
    """The conversations of a file, and the records that belong to none."""

    source: str
    conversations: list[LoggedConversation]
    skipped: list[SkippedRecord]

    def select(self, number: int | None, *, others: str = "") -> LoggedConversation:
        """Return a conversation by its number, from 1, or the only one if `number` is None. Raises `InvalidValue`.

        `others` names the other accepted values for the error.
        """
        count = len(self.conversations)
        if number is None and count == 1:
            return self.conversations[0]
        if number is None or not 1 <= number <= count:
            given = "" if number is None else f", not {number}"
            raise InvalidValue(
                f"{self.source!r} holds {count:,} conversations;"
                f" choose one with --conversation, 1 to {count:,}{others}{given}."
            )
        return self.conversations[number - 1]

    def count_skipped(self) -> dict[str, int]:
        """Return how many records of each kind were skipped."""
        return dict(Counter(record.what for record in self.skipped).most_common())


def detect_kind(source: str) -> FileKind:
    """Return the kind of a file from its content. A file that cannot be read counts as messages."""
    if not _is_seekable(source):
        return "messages"
    try:
        with Path(source).open("rb") as file:
            start = file.read(_HEADER)
            if start.startswith(_EXPORT):
                return "export"
            if b'"segments"' not in start:
                return "messages"
            value = json.loads(start + file.read())
    except (OSError, ValueError, RecursionError):
        return "messages"
    return "document" if isinstance(value, dict) and {"segments", "pages"} <= value.keys() else "messages"


def is_store(source: str) -> bool:
    """Return whether a source is the address of a store, or a SQLite file."""
    if source.startswith(_ADDRESSES) or not _is_seekable(source):
        return source.startswith(_ADDRESSES)
    try:
        with Path(source).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _is_seekable(source: str) -> bool:
    """Return whether a file can be read twice: standard input and pipes cannot."""
    return source != _STDIN and Path(source).is_file()


def read_log(source: str) -> LogFile:
    """Read the conversations of a file, or of standard input (`-`). Raises `InvalidValue` if it has none."""
    name = "standard input" if source == _STDIN else source
    conversations: list[LoggedConversation] = []
    skipped: list[SkippedRecord] = []
    loose: list[_Piece] = []
    for line, value in _values(_read_bytes(source, name), name):
        parts = [value] if isinstance(value, SkippedRecord) else _unwrap(value, line)
        for part in parts:
            if isinstance(part, LoggedConversation):
                conversations.append(part)
            elif isinstance(part, SkippedRecord):
                skipped.append(part)
            else:
                loose.append(part)
    if loose:
        conversations.append(LoggedConversation("", _join_answers(loose)))
    log = LogFile(name, conversations, skipped)
    if not conversations:
        kinds = list(log.count_skipped().items())[:5]
        what = ", ".join(f"{count:,} × {kind}" for kind, count in kinds) or "it is empty"
        raise InvalidValue(f"No message in {name!r} ({what}); JSON or JSON Lines of a provider's messages are needed.")
    return log


def _join_answers(pieces: Sequence[_Piece]) -> list[object]:
    """Return the messages, with the parts of one answer joined."""
    messages: list[object] = []
    for answer, run in groupby(pieces, key=lambda piece: piece.answer):
        values = [piece.value for piece in run]
        parts = [value for value in values if isinstance(value, dict)]
        if answer and len(parts) > 1:
            content = [block for part in parts for block in _blocks(part.get("content"))]
            messages.append({**parts[-1], "content": content})
        else:
            messages += values
    return messages


def _blocks(content: object) -> list[object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())  # type: ignore[call-overload]


def _read_bytes(source: str, name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if source == _STDIN else Path(source).read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValue(f"Cannot read {name!r}: {reason}.") from None


def _values(data: bytes, name: str) -> Iterator[tuple[int, object]]:
    """Yield the JSON values of a file with their lines: one document, or one value on each line."""
    if data.startswith(_SQLITE):
        raise InvalidValue(
            f"{name!r} is a store, not a file of messages. Run quire export {name} messages.jsonl --format openai"
            " to write the messages of a context."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{name!r} is not UTF-8: {error}.") from None
    try:
        yield 1, json.loads(text)
    except RecursionError:
        raise InvalidValue(f"{name!r} is nested too deeply.") from None
    except ValueError as error:
        values = [(n, _line_value(n, line)) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        if all(isinstance(value, SkippedRecord) for _, value in values):  # not JSON Lines either
            raise InvalidValue(
                f"{name!r} is neither JSON nor JSON Lines: {error}; it begins {short_repr(text[:40])}."
            ) from None
        yield from values


def _line_value(number: int, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return SkippedRecord(number, "a line that is no JSON")


def _unwrap(value: object, line: int) -> Iterator[LoggedConversation | _Piece | SkippedRecord]:
    """Yield the conversations, messages and other records in a JSON value."""
    if isinstance(value, list):
        if value and all(isinstance(inner, list) for inner in value):  # several conversations
            yield from (LoggedConversation("", inner) for inner in value)
            return
        for inner in value:
            yield from _unwrap(inner, line)
    elif not isinstance(value, dict):
        yield SkippedRecord(line, f"no message but {type(value).__name__}")
    elif (conversation := _request_conversation(value)) is not None:
        yield conversation
    elif isinstance(value.get("message"), dict) and "finish_reason" not in value and "role" not in value:
        yield _claude_code_line(value, line)
    elif isinstance(value.get("payload"), dict) and isinstance(value.get("type"), str):
        yield _codex_line(value["type"], value["payload"], line)
    elif _is_message(value):
        yield _Piece(value)
    elif isinstance(value.get("instructions"), str) and value["instructions"]:  # the first line of an older session
        yield _Piece({"role": "system", "content": value["instructions"]})
    else:
        yield SkippedRecord(line, _describe(value))


def _request_conversation(value: _Object) -> LoggedConversation | None:
    """Return the conversation of a request body or a recorded run; None if the value is neither."""
    if "role" in value:
        return None
    system = value.get("system") or value.get("instructions")
    prompt: list[object] = [{"role": "system", "content": system}] if system else []
    name = str(value.get("id") or value.get("name") or "")
    given = None if "type" in value else value.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    lists = (*map(value.get, _LISTS), given)
    messages = next((found for found in lists if isinstance(found, list)), None)
    return None if messages is None else LoggedConversation(name, [*prompt, *messages])


def _claude_code_line(value: _Object, line: int) -> _Piece | SkippedRecord:
    message = value["message"]
    ignored = next((words for key, words in _IGNORED.items() if value.get(key)), None)
    if ignored is not None or "role" not in message:
        return SkippedRecord(line, ignored or _describe(value))
    answer = message.get("id") if message["role"] == "assistant" else None
    return _Piece(message, answer if isinstance(answer, str) else "")


def _codex_line(kind: str, payload: _Object, line: int) -> _Piece | SkippedRecord:
    if kind == "response_item" and _is_message(payload):
        return _Piece(payload)
    if kind == "session_meta":
        instructions = payload.get("instructions") or payload.get("base_instructions")
        if isinstance(instructions, Mapping):
            instructions = instructions.get("text")
        if isinstance(instructions, str) and instructions:
            return _Piece({"role": "system", "content": instructions})
    inner = payload.get("type")
    return SkippedRecord(line, f"{kind} {inner}" if isinstance(inner, str) else kind)


def _is_message(value: _Object) -> bool:
    kind = value.get("type")
    if "role" in value or isinstance(value.get("choices"), list) or isinstance(value.get("output"), list):
        return True
    return isinstance(kind, str) and (kind in _ITEMS or kind.endswith(_ITEM_ENDS))


def _describe(value: _Object) -> str:
    kind = value.get("type") or value.get("record_type")
    if isinstance(kind, str):
        return f"no message but {kind!r}"
    return f"no message: an object with {', '.join(map(repr, list(value)[:4])) or 'nothing in it'}"
