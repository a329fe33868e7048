"""Values with all their fields: the repr of a page, a message, a hit or an entry is short."""

from collections.abc import Mapping, Set
from typing import Any

from msgspec import Struct, structs


def whole(value: Any) -> Any:
    """Return a value with every struct in it as a dict of all fields and the name of its class."""
    if isinstance(value, Struct):
        return {"": type(value).__name__, **{name: whole(field) for name, field in structs.asdict(value).items()}}
    if isinstance(value, Mapping):
        return {whole_repr(key): whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [whole(item) for item in value]
    return sorted(map(whole_repr, value)) if isinstance(value, Set) else value


def whole_repr(value: Any) -> str:
    """Return the repr of a value with all fields of the structs in it."""
    return repr(whole(value))
