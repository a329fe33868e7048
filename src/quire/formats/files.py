"""Files of conversations: JSON or JSON Lines of messages, requests, session logs of coding agents, and databases.

| shape                                              | source                                                       |
|----------------------------------------------------|--------------------------------------------------------------|
| `{"role", "content"}`, items with a `type`         | messages of OpenAI and Anthropic, items of Responses         |
| `{"system", "messages"}`, `{"instructions", "input"}` | request bodies; `{"id", "messages"}` of recorded runs     |
| `{"choices"}`, `{"output"}`                        | responses                                                    |
| `{"type", "message": {"role", …}}`                 | sessions of Claude Code; an answer may take several lines    |
| `{"type", "payload": {…}}`                         | sessions of Codex                                            |
| `{"type", "data"}`, `{"lc", "kwargs"}`             | messages of LangChain                                        |
| `{"kind", "parts"}`                                | messages of pydantic-ai                                      |

`quire.formats.databases` reads databases. Sub-agents of Claude Code are conversations of their own; their files beside
a session are read with it. Messages have the times of their records under the key `timestamp`.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quire.errors import InvalidValue, short_repr
from quire.formats.log import LogFile, LoggedConversation, SkippedRecord
from quire.providers.detection import ITEMS, detect_framework

_Object = dict[str, Any]
_GZIP = b"\x1f\x8b"
_STDIN = "-"
_EXPORT = b"quire export "
_SQLITE = b"SQLite format 3\0"
_ADDRESSES = ("sqlite:", "file:", "postgresql:", "postgres:", "s3:")
_HEADER = 4_096
_LISTS = ("messages", "history", "conversation", "items")

FileKind = Literal["messages", "export", "document"]
"""Messages in any shape, a context from `export`, or the JSON document of a context."""


class _Piece(NamedTuple):
    """A message or a part of one: pieces with the same `answer` id are parts of one message.

    `agent` is the id of a sub-agent, or "".
    """

    value: object
    answer: str = ""
    agent: str = ""


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


def is_database(source: str) -> bool:
    """Return whether a source is a SQLite file or the address of a PostgreSQL server."""
    if not _is_seekable(source):
        return source.startswith(("postgresql:", "postgres:"))
    try:
        with Path(source).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def is_store(source: str) -> bool:
    """Return whether a source is the address of a store of quire, or a SQLite file of quire."""
    if source.startswith(_ADDRESSES):
        return True
    if not is_database(source):
        return False
    from quire.formats.databases import has_sessions

    return not has_sessions(source)


def _is_seekable(source: str) -> bool:
    """Return whether a file can be read twice: standard input and pipes cannot."""
    return source != _STDIN and Path(source).is_file()


def read_log(source: str | os.PathLike[str], *, subagents: bool = True) -> LogFile:
    """Read the conversations of a file, of standard input (`-`) or of a database. Raises `InvalidValue` if it has none.

    A database is a SQLite file or the address of a PostgreSQL server, with sessions of the OpenAI Agents SDK or
    checkpoints of LangGraph. With `subagents` the files of a session's sub-agents are read too.
    """
    source = os.fspath(source)
    name = "standard input" if source == _STDIN else source
    if is_database(source):
        from quire.formats.databases import read_database

        conversations, skipped = read_database(source)
    else:
        conversations, skipped = _read_values(_values(_read_bytes(source, name), name))
        for path in _subagent_files(source) if subagents else ():
            found, unread = _read_values(_values(_read_bytes(str(path), str(path)), str(path)))
            conversations += [agent._replace(name=agent.name or path.stem, is_agent=True) for agent in found]
            skipped += unread
    log = LogFile(name, conversations, skipped)
    if not conversations:
        kinds = list(log.count_skipped().items())[:5]
        what = ", ".join(f"{count:,} × {kind}" for kind, count in kinds) or "it is empty"
        raise InvalidValue(f"No message in {name!r} ({what}); JSON or JSON Lines of a provider's messages are needed.")
    return log


def _read_values(values: Iterable[tuple[int, object]]) -> tuple[list[LoggedConversation], list[SkippedRecord]]:
    """Return the conversations of a file and its skipped records.

    Messages outside a conversation object form one conversation for the session and one for each sub-agent.
    """
    conversations: list[LoggedConversation] = []
    skipped: list[SkippedRecord] = []
    loose: dict[str, list[_Piece]] = {}
    threads: dict[str, str] = {}
    for line, value in values:
        for part in [value] if isinstance(value, SkippedRecord) else _unwrap(value, line, threads):
            if isinstance(part, LoggedConversation):
                conversations.append(part)
            elif isinstance(part, SkippedRecord):
                skipped.append(part)
            else:
                loose.setdefault(part.agent, []).append(part)
    conversations += [
        LoggedConversation(agent and f"agent-{agent}", _join_answers(loose[agent]), bool(agent))
        for agent in sorted(loose, key=bool)  # the session first, then its sub-agents
    ]
    return [found._replace(messages=_with_instructions(found.messages)) for found in conversations], skipped


def _subagent_files(source: str) -> list[Path]:
    """Return the files of the sub-agents of a session of Claude Code."""
    path = Path(source)
    if source == _STDIN or path.suffix != ".jsonl" or path.name.startswith("agent-"):
        return []
    beside = (other for other in path.parent.glob("agent-*.jsonl") if _session_of(other) == path.stem)
    return sorted((*(path.parent / path.stem / "subagents").glob("agent-*.jsonl"), *beside))


def _session_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return None
    return first.get("sessionId") if isinstance(first, dict) else None


def _with_instructions(messages: list[object]) -> list[object]:
    """Return messages; put the instructions of the first request of pydantic-ai before them as a system message."""
    first = messages[0] if messages else None
    text = first.get("instructions") if isinstance(first, dict) and detect_framework(first) == "pydantic_ai" else None
    return [{"role": "system", "content": text}, *messages] if isinstance(text, str) and text else messages


def _join_answers(pieces: Sequence[_Piece]) -> list[object]:
    """Return the messages, with the parts of one answer joined: a result may come between two calls of an answer."""
    messages: list[object] = []
    places: dict[str, int] = {}
    for piece in pieces:
        place = places.get(piece.answer) if piece.answer else None
        earlier = messages[place] if place is not None else None
        if isinstance(earlier, dict) and isinstance(piece.value, dict) and place is not None:
            content = [*_blocks(earlier.get("content")), *_blocks(piece.value.get("content"))]
            messages[place] = {**piece.value, "content": content}
        else:
            places[piece.answer] = len(messages)
            messages.append(piece.value)
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
            start = f"it begins {short_repr(text[:40])}" if text.strip() else "it is empty"
            raise InvalidValue(f"{name!r} is neither JSON nor JSON Lines: {error}; {start}.") from None
        yield from values


def _line_value(number: int, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return SkippedRecord(number, "a line that is no JSON")


def _unwrap(value: object, line: int, threads: dict[str, str]) -> Iterator[LoggedConversation | _Piece | SkippedRecord]:
    """Yield the conversations, messages and skipped records in a JSON value.

    `threads` maps the uuid of a record to the id of its sub-agent.
    """
    if isinstance(value, list):
        if value and all(isinstance(inner, list) for inner in value):  # several conversations
            yield from (LoggedConversation("", inner) for inner in value)
            return
        for inner in value:
            yield from _unwrap(inner, line, threads)
    elif not isinstance(value, dict):
        yield SkippedRecord(line, f"not a message: {type(value).__name__}")
    elif (conversation := _request_conversation(value)) is not None:
        yield conversation
    elif isinstance(value.get("message"), dict) and "finish_reason" not in value and "role" not in value:
        yield _claude_code_line(value, line, threads)
    elif isinstance(value.get("payload"), dict) and isinstance(value.get("type"), str):
        yield _codex_line(value, line)
    elif _is_message(value):
        yield _Piece(value)
    elif (prompt := _prompt_of(value)) is not None:
        yield _Piece(_dated({"role": "system", "content": prompt}, value))
    else:
        yield SkippedRecord(line, _describe(value))


def _prompt_of(value: _Object) -> str | None:
    """Return the prompt in the first line of an older session of Codex, or in a session that `format_session` wrote."""
    found = value.get("content") if value.get("quireRole") == "system" else value.get("instructions")
    return found if isinstance(found, str) and found else None


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


def _claude_code_line(value: _Object, line: int, threads: dict[str, str]) -> _Piece | SkippedRecord:
    message, agent = value["message"], ""
    if value.get("isSidechain"):
        parent = value.get("parentUuid")
        agent = str(value.get("agentId") or threads.get(str(parent)) or value.get("uuid") or line)
        threads[str(value.get("uuid") or line)] = agent
    is_error = bool(value.get("isApiErrorMessage"))
    if is_error or "role" not in message:
        return SkippedRecord(line, "an error of the provider's" if is_error else _describe(value))
    answer = message.get("id") if message["role"] == "assistant" else None
    return _Piece(_dated(message, value), answer if isinstance(answer, str) else "", agent)


def _codex_line(value: _Object, line: int) -> _Piece | SkippedRecord:
    kind, payload = value["type"], value["payload"]
    if kind == "response_item" and _is_message(payload):
        return _Piece(_dated(payload, value))
    if kind == "session_meta":
        instructions = payload.get("instructions") or payload.get("base_instructions")
        if isinstance(instructions, Mapping):
            instructions = instructions.get("text")
        if isinstance(instructions, str) and instructions:
            return _Piece(_dated({"role": "system", "content": instructions}, value))
    inner = payload.get("type")
    return SkippedRecord(line, f"{kind} {inner}" if isinstance(inner, str) else kind)


def _dated(message: _Object, record: _Object) -> _Object:
    """Return a message with the time of its record, and without fields that only Codex has."""
    plain = {key: value for key, value in message.items() if key != "internal_chat_message_metadata_passthrough"}
    return {**plain, "timestamp": record["timestamp"]} if "timestamp" in record else plain


def _is_message(value: _Object) -> bool:
    if "role" in value or isinstance(value.get("choices"), list) or isinstance(value.get("output"), list):
        return True
    return value.get("type") in ITEMS or detect_framework(value) is not None


def _describe(value: _Object) -> str:
    kind = value.get("type") or value.get("record_type")
    if isinstance(kind, str):
        return f"not a message: {kind!r}"
    return f"no message: an object with {', '.join(map(repr, list(value)[:4])) or 'nothing in it'}"
