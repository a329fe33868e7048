"""Checkpoints of LangGraph, decoded without running stored code.

A value is msgpack with extension types that name a Python class and its arguments, or JSON. Only the message classes of
LangChain are read; nothing is imported or called. Another object in the list of messages is refused by its name.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from quire.errors import InvalidValue, short_repr
from quire.model.clock import take_time
from quire.providers.detection import detect_framework

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
            dated.append(message if has_time or time is None else {**_without_objects(message), "timestamp": time})
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
