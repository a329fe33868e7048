"""What a search of LangGraph's stores asks for beside its words: filters on values, conditions on namespaces."""

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any

from quire.adapters.shared.opening import installed
from quire.errors import InvalidValue, short_repr

with installed("langgraph"):
    from langgraph.store.base import MatchCondition

Namespace = tuple[str, ...]

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether a value is what a filter wants, field by field."""
    return all(_is(value.get(field), condition) for field, condition in (wanted or {}).items())


def lies_in(namespace: Namespace, condition: MatchCondition) -> bool:
    """Whether a namespace begins or ends as a condition says; `*` stands for any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidValue(f"match_type is {short_repr(condition.match_type)}; 'prefix' or 'suffix' is needed.")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compares(value, operator, other) for operator, other in wanted.items())
        return isinstance(value, Mapping) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same_length and all(_is(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compares(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    order = _ORDERS.get(operator)
    if order is None:
        raise InvalidValue(
            f"A filter has the operator {short_repr(operator)}; known are $eq, $ne, {', '.join(_ORDERS)}."
        )
    try:
        return order(float(value), float(other))
    except (TypeError, ValueError):  # what is no number has the order of texts, such as dates, or none
        return isinstance(value, str) and isinstance(other, str) and order(value, other)
