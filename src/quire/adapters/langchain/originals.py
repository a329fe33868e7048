"""LangChain's messages kept exactly: as JSON text from which an equal message is made again.

Beside JSON's own values, tuples, bytes, dates and LangChain's own objects (documents in an artifact) are kept. Reading
builds messages and LangChain's core values only, never what a stored name asks for.
"""

import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from quire.adapters.langchain.messages import built, parse
from quire.adapters.shared.opening import installed
from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message

with installed("langchain"):
    from langchain_core.load import dumpd, load
    from langchain_core.load.serializable import Serializable
    from langchain_core.messages import BaseMessage, messages_from_dict

_META = "langchain"
_TAG = "$quire"


def kept(message: BaseMessage) -> list[Message]:
    """The message as quire keeps it, with the original beside it. Raises `InvalidValue` for what cannot be kept."""
    fields = {name: getattr(message, name) for name in (*type(message).model_fields, *(message.model_extra or ()))}
    if isinstance(message.content, str):
        del fields["content"]  # it is the message's own
    data = {name: _written(value, f"{type(message).__name__}.{name}") for name, value in fields.items()}
    written = json.dumps({"type": message.type, "data": data}, ensure_ascii=False)
    return [replace(parsed, meta={_META: written}) for parsed in parse(message)]


def original(message: Message) -> BaseMessage | None:
    """The message as it was added, or as much of it as a view shows; None if there is nothing of it to show."""
    written = message.meta.get(_META)
    if not isinstance(written, str):
        return built(message)
    stored = json.loads(written)
    data = {name: _read(value) for name, value in stored["data"].items()}
    data.setdefault("content", message.content if isinstance(message.content, str) else "")
    [found] = messages_from_dict([{"type": stored["type"], "data": data}])
    [parsed] = parse(found)
    return found if parsed.content == message.content else built(message, found)


def _written(value: Any, place: str) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is list:
        return [_written(inner, f"{place}[{n}]") for n, inner in enumerate(value)]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and _TAG not in value:
            return {key: _written(inner, f"{place}.{key}") for key, inner in value.items()}
        pairs = [[_written(key, place), _written(inner, f"{place}[{key!r}]")] for key, inner in value.items()]
        return {_TAG: "dict", "value": pairs}
    if type(value) is tuple:
        return {_TAG: "tuple", "value": [_written(inner, f"{place}[{n}]") for n, inner in enumerate(value)]}
    if isinstance(value, bytes):
        return {_TAG: "bytes", "value": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {_TAG: "datetime", "value": value.isoformat()}
    if isinstance(value, Serializable) and value.is_lc_serializable():
        return {_TAG: "core", "value": dumpd(value)}
    raise InvalidValue(
        f"{place} is {short_repr(value)}; JSON values, tuples, bytes, dates and LangChain's own are kept."
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if _TAG in value:
        return _READ[value[_TAG]](value["value"])
    return {key: _read(inner) for key, inner in value.items()}


def _core(value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(value, allowed_objects="core")


_READ: Mapping[str, Callable[[Any], Any]] = {
    "dict": lambda pairs: {_read(key): _read(value) for key, value in pairs},
    "tuple": lambda values: tuple(map(_read, values)),
    "bytes": b64decode,
    "datetime": datetime.fromisoformat,
    "core": _core,
}
