"""Modifications given as data: the dicts of the design document."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quire.conversation import batches, edits
from quire.conversation.results import Modification
from quire.errors import InvalidValue, shown
from quire.messages import Message
from quire.plan import Plan
from quire.providers import parse

Planner = Callable[[Plan], Modification]
_FIELDS = ("operation", "indices", "data", "batch")
_OPERATIONS = ("insert", "delete", "replace", "compress", "batch_start", "batch_end", "batch_commit")


def planner_of(value: object, place: str) -> tuple[str, Planner]:
    """The operation a dict asks for, and what plans it. Raises `InvalidValue` naming what is wrong with it."""
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{place} is {shown(value)}; a dict with operation, indices, data and batch is needed.")
    unknown = [key for key in value if key not in _FIELDS]
    if unknown:
        raise InvalidValue(f"{place} has the field {shown(unknown[0])}; fields are {', '.join(_FIELDS)}.")
    operation = value.get("operation")
    if operation not in _OPERATIONS:
        raise InvalidValue(f"{place}.operation is {shown(operation)}; use {', '.join(_OPERATIONS)}.")
    indices, data, batch = value.get("indices", []), value.get("data"), value.get("batch")
    if isinstance(indices, str | bytes) or not isinstance(indices, Sequence):
        raise InvalidValue(f"{place}.indices is {shown(indices)}; a list of message indices is needed.")
    return operation, _planner(operation, indices, data, batch, place)


def _planner(operation: str, indices: Sequence[Any], data: object, batch: Any, place: str) -> Planner:
    match operation:
        case "insert":
            messages = messages_of(data, f"{place}.data")
            if len(indices) > 1:
                raise InvalidValue(f"{place}.indices has {len(indices)} entries; an insert goes to one place.")
            at = indices[0] if indices else None
            return lambda plan: edits.insert(plan, messages, at)
        case "delete":
            return lambda plan: edits.delete(plan, indices)
        case "replace":
            messages = messages_of(data, f"{place}.data")
            return lambda plan: edits.replace(plan, indices, messages)
        case "compress":
            if data is not None and not isinstance(data, str):
                raise InvalidValue(f"{place}.data is {shown(data)}; a compression takes a summary as text, or nothing.")
            return lambda plan: edits.compress(plan, indices, data)
        case "batch_start":
            boundary = _single(indices, None, place) if indices else None
            return lambda plan: batches.batch_start(plan, boundary)
        case "batch_end":
            target = _single(indices, batch, place)
            return lambda plan: batches.batch_end(plan, target)
        case _:
            return batches.batch_commit


def messages_of(data: object, place: str = "data") -> list[Message]:
    """One message or a list of them, in any provider's shape. Raises `InvalidValue` if there is none."""
    messages = [] if data is None else parse(data)
    if not messages:
        raise InvalidValue(f"{place} is {shown(data)}; a message or a list of messages is needed.")
    return messages


def _single(indices: Sequence[Any], batch: Any, place: str) -> Any:
    if batch is not None and not indices:
        return batch
    if len(indices) != 1 or (batch is not None and batch != indices[0]):
        raise InvalidValue(f"{place} names {shown(list(indices))} and batch {shown(batch)}; exactly one is needed.")
    return indices[0]
