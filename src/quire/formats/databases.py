"""Databases of sessions: the OpenAI Agents SDK and LangGraph, in SQLite or PostgreSQL. They are only read.

SQLite files are read with `sqlite3`, as these tools do. If another SQLite library in the same process opened and closed
such a file, the system would release the locks that `sqlite3` holds on it.

| tables                                          | source                                                      |
|-------------------------------------------------|-------------------------------------------------------------|
| `agent_sessions`, `agent_messages`              | sessions of the OpenAI Agents SDK (SQLite, SQLAlchemy)      |
| `checkpoints` with `writes`                     | LangGraph's SQLite saver                                    |
| `checkpoints` with `checkpoint_blobs`           | LangGraph's PostgreSQL saver                                |

Checkpoints are decoded without running stored code. A value is msgpack with extension types that name a Python class
and its arguments, or JSON. Only the message classes of LangChain are read; nothing is imported or called. Any other
object in the list of messages is refused; the error names its class.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from quire.errors import InvalidValue, short_repr
from quire.formats.log import LoggedConversation, SkippedRecord
from quire.model.clock import take_time
from quire.providers.detection import detect_framework

Rows = Callable[[str, Sequence[object]], Iterator[Sequence[Any]]]
"""Runs a query with `?` for its parameters; yields its rows."""
Found = tuple[list[LoggedConversation], list[SkippedRecord]]
_CHECKPOINTS = (
    "SELECT type, checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id"
)
_ADDRESSES = ("postgresql://", "postgres://")
_AGENTS = {"agent_sessions", "agent_messages"}


def read_database(source: str) -> Found:
    """Return the conversations of a database and its skipped records. Raises `InvalidValue` for an unknown database."""
    with _open(source) as (rows, tables):
        if tables >= _AGENTS:
            return _read_agents(rows)
        if "checkpoints" in tables:
            return _read_checkpoints(rows, blobs="checkpoint_blobs" in tables)
    if source.startswith(_ADDRESSES):
        raise InvalidValue("The database has no sessions of the OpenAI Agents SDK and no checkpoints of LangGraph.")
    raise InvalidValue(
        f"{source!r} has no sessions of the OpenAI Agents SDK and no checkpoints of LangGraph. If it is a store of"
        f" quire, run quire export {source} messages.jsonl --format openai to write the messages of a context."
    )


def has_sessions(source: str) -> bool:
    """Return whether a SQLite file has sessions that `read_database` reads."""
    try:
        with _open(source) as (_, tables):
            return tables >= _AGENTS or "checkpoints" in tables
    except InvalidValue:
        return False


@contextmanager
def _open(source: str) -> Iterator[tuple[Rows, set[str]]]:
    """Open a database for reading; yield a function that runs queries, and the names of its tables."""
    if source.startswith(_ADDRESSES):
        with _connect_postgres(source) as connection:

            def rows(query: str, values: Sequence[object]) -> Iterator[Sequence[Any]]:
                return iter(connection.execute(query.replace("?", "%s"), values).fetchall())

            listed = rows("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()", ())
            yield rows, {str(name) for (name,) in listed}
        return
    try:
        with closing(sqlite3.connect(f"{Path(source).absolute().as_uri()}?mode=ro", uri=True)) as file:
            listed = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            yield file.execute, {str(name) for (name,) in listed}
    except sqlite3.Error as error:
        raise InvalidValue(f"Cannot read {source!r} as a SQLite database: {error}.") from None


@contextmanager
def _connect_postgres(source: str) -> Iterator[Any]:
    try:
        import psycopg
    except ImportError:
        raise InvalidValue("Reading a PostgreSQL database needs the extra 'postgres'.") from None
    try:
        with psycopg.connect(source, autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        raise InvalidValue(f"Cannot read the PostgreSQL database: {error}.") from None


def _read_agents(rows: Rows) -> Found:
    """Read the sessions of the OpenAI Agents SDK: one JSON item per row, in the order of their ids."""
    sessions: dict[str, list[object]] = {}
    skipped: list[SkippedRecord] = []
    for (name,) in rows("SELECT session_id FROM agent_sessions ORDER BY created_at, session_id", ()):
        sessions[str(name)] = []
    query = "SELECT id, session_id, message_data, created_at FROM agent_messages ORDER BY id"
    for number, name, data, created in rows(query, ()):
        try:
            item = json.loads(data) if isinstance(data, str | bytes) else data
        except (ValueError, RecursionError):
            item = None
        if not isinstance(item, dict) or "__enc__" in item:
            what = "an encrypted item" if isinstance(item, dict) else "an item that is no JSON object"
            skipped.append(SkippedRecord(number, what))
            continue
        sessions.setdefault(str(name), []).append({**item, "timestamp": created} if created else item)
    return [LoggedConversation(name, items) for name, items in sessions.items() if items], skipped


def _read_checkpoints(rows: Rows, *, blobs: bool) -> Found:
    """Read the messages of the newest checkpoint of every thread, each with the time at which it first appeared."""
    found: list[LoggedConversation] = []
    skipped: list[SkippedRecord] = []
    named = "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints ORDER BY thread_id, checkpoint_ns"
    for number, (thread_id, namespace) in enumerate(list(rows(named, ())), 1):
        place = f"thread {thread_id!r}" + (f", namespace {namespace!r}" if namespace else "")
        thread = CheckpointThread(place)
        for kind, data in list(rows(_CHECKPOINTS, (thread_id, namespace))):
            if not blobs:
                thread.add(decode_checkpoint(kind, data, place))
                continue
            checkpoint = data if isinstance(data, dict) else json.loads(data)
            version = checkpoint.get("channel_versions", {}).get("messages")
            inline = checkpoint.get("channel_values", {}).get("messages")
            stored = rows(
                "SELECT type, blob FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ?"
                " AND channel = 'messages' AND version = ?",
                (thread_id, namespace, str(version)),
            )
            values = [decode_channel(kind, blob, place) for kind, blob in stored if kind != "empty"]
            thread.add({"ts": checkpoint.get("ts"), "channel_values": {"messages": values[0] if values else inline}})
        if messages := thread.dated_messages():
            name = f"{thread_id}.{namespace}" if namespace else str(thread_id)
            found.append(LoggedConversation(name, messages))
        else:
            skipped.append(SkippedRecord(number, "a thread without messages"))
    return found, skipped


_MESSAGES = ("langchain_core.messages", "langchain.schema", "langchain_core.load")
_KNOWN = frozenset(
    f"{name}Message{chunk}" for name in ("Human", "AI", "System", "Tool", "Function", "Chat") for chunk in ("", "Chunk")
) | {"RemoveMessage"}
_MOST_NESTED = 64
_ACCEPTED = "messages of LangChain and dicts with a role are read"


class _StoredObject:
    """An object of a class that is not a message. Its arguments are not kept."""

    def __init__(self, name: str) -> None:
        self.name = name


def decode_checkpoint(kind: str | None, data: Any, place: str) -> Mapping[str, Any]:
    """Return a stored checkpoint as plain values. Raises `InvalidValue`, which names the place."""
    found = decode_channel(kind, data, place)
    if not isinstance(found, Mapping):
        raise InvalidValue(f"{place}: a checkpoint is {short_repr(found)}; a dict is needed.")
    return found


def decode_channel(kind: str | None, data: Any, place: str) -> Any:
    """Return the value of a channel as plain values, with messages as the dicts of `messages_to_dict`."""
    try:
        if kind in ("msgpack", None):
            return _unpack(bytes(data), 0)
        if kind == "json":
            return json.loads(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValue(f"{place}: a value cannot be decoded: {error}.") from None
    raise InvalidValue(f"{place}: a value is stored as {kind!r}; msgpack and json are read, and pickle never is.")


def _unpack(data: bytes, depth: int) -> Any:
    if depth > _MOST_NESTED:
        raise RecursionError("it is nested too deeply")

    def read_extension(_code: int, inner: memoryview) -> Any:
        try:
            found = _unpack(bytes(inner), depth + 1)
        except msgspec.DecodeError:
            return _StoredObject("an extension type that is not known")
        if not isinstance(found, list) or len(found) < 3 or not isinstance(found[0], str):
            return _StoredObject("an extension type that is not known")
        module, name, arguments = found[:3]
        if module.startswith(_MESSAGES) and name in _KNOWN and isinstance(arguments, dict):
            kind = name.removesuffix("Chunk").removesuffix("Message").lower()
            return {"type": kind, "data": {**arguments, "type": kind}}
        return _StoredObject(f"{module}.{name}")

    return msgspec.msgpack.decode(data, ext_hook=read_extension)


class CheckpointThread:
    """The checkpoints of one thread, from the oldest to the newest."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._times: dict[str, Any] = {}
        self._messages: list[Any] = []

    def add(self, checkpoint: Mapping[str, Any]) -> None:
        """Add the next checkpoint. Its messages replace those of the one before."""
        values = checkpoint.get("channel_values")
        messages = values.get("messages") if isinstance(values, Mapping) else None
        self._messages = messages if isinstance(messages, list) else self._messages if messages is None else [messages]
        for n, message in enumerate(self._messages):
            self._times.setdefault(_identity(message, n), checkpoint.get("ts"))

    def dated_messages(self) -> list[object]:
        """Return the messages of the newest checkpoint with their times. Raises `InvalidValue` for other objects."""
        dated: list[object] = []
        for n, message in enumerate(self._messages):
            if isinstance(message, _StoredObject):
                raise InvalidValue(f"{self._place}, messages[{n}] is an object of {message.name}; {_ACCEPTED}.")
            if not isinstance(message, dict) or ("role" not in message and detect_framework(message) is None):
                raise InvalidValue(f"{self._place}, messages[{n}] is {short_repr(message)}; {_ACCEPTED}.")
            time = self._times.get(_identity(message, n))
            has_time = take_time(message)[1] is not None
            plain = _without_objects(message)
            dated.append(plain if has_time or time is None else {**plain, "timestamp": time})
        return dated


def _identity(message: Any, position: int) -> str:
    """Return the id of a message, or its position if it has none."""
    fields = message.get("data") or message.get("kwargs") or message if isinstance(message, dict) else None
    found = fields.get("id") if isinstance(fields, dict) else None
    return found if isinstance(found, str) and found else f"#{position}"


def _without_objects(value: Any) -> Any:
    """Return a copy in which objects of other classes, such as artifacts of tools, are their names."""
    if isinstance(value, dict):
        return {str(key): _without_objects(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_objects(inner) for inner in value]
    return f"[{value.name}]" if isinstance(value, _StoredObject) else value
