"""What storages and their callers share: names of contexts, durability, and the errors for a missing context."""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Final, Literal, cast

from msgspec import Struct

from quire.errors import Hint, InvalidValue, NoSuchContext, StorageFailure, short_repr
from quire.storage.contract import Storage

RESERVED: Final = "quire.lease."
"""The names of companions of contexts begin with this. They are not listed."""
Durability = Literal["normal", "full"]
Severity = Literal["note", "warning", "error"]


class Symptom(Struct, frozen=True):
    """One problem: a stable `code`, its place, its meaning, how to repair it, and whether it was repaired.

    `context` is empty if the problem concerns the whole store.
    """

    code: str
    severity: Severity
    where: str
    text: str
    remedy: str = ""
    context: str = ""
    repaired: bool = False

    def __str__(self) -> str:
        place = f"{self.context}: {self.where}" if self.context else self.where
        after = " Repaired." if self.repaired else f" {self.remedy}" if self.remedy else ""
        stop = "" if self.text.endswith((".", "!", "?", "。")) else "."
        return f"{self.severity} [{self.code}] {place}: {self.text}{stop}{after}"


class NothingWritten(StorageFailure):
    """The storage failed before it wrote anything: nothing was changed."""


def list_contexts(storage: Storage, after: str = "") -> Iterator[str]:
    """Yield the names of the contexts greater than `after`, without those that hold leases. Streams."""
    return (name for name in storage.contexts(after) if not name.startswith(RESERVED))


def check_storage(value: object) -> Storage:
    """Return the value if it has the methods of the protocol, or a storage over its five calls.

    Raises `InvalidValue`.
    """
    from quire.storage.five_calls import CALLS, FiveCallStorage, has_five_calls  # late: it builds on this module

    if has_five_calls(value) and not isinstance(value, type):
        return FiveCallStorage(cast(Any, value))
    methods = ("load", "entries", "get", "scan", "children", "create", "commit", "contexts", "drop", "close")
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidValue(
            f"{short_repr(value)} is no storage. A storage has {', '.join(methods)}; a backend of pages has"
            f" {', '.join(CALLS)}.",
            Hint("open_storage", arguments="url", purpose="to open one"),
        )
    return cast(Storage, value)


def check_durability(value: object) -> Durability:
    """Return the value if it is a durability. Raises `InvalidValue`."""
    if value not in ("normal", "full"):
        raise InvalidValue(f"is {short_repr(value)}; use 'normal' or 'full'.", argument="durability")
    return value


def check_context_name(name: object) -> str:
    """Return the name if it can name a context. Raises `InvalidValue`."""
    if isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and name == name.strip():
        return name if type(name) is str else str.__str__(name)
    raise InvalidValue(
        f"Context name {short_repr(name)} is not allowed; use 1 to 200 printable characters without outer spaces."
    )


@cache
def quire_version() -> str:
    """Return the version of this quire. A store contains it, so that an older quire can name the version it needs."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("quire")
    except PackageNotFoundError:  # pragma: no cover - run from a folder that is not installed
        return "0"


_MAX_LISTED: Final = 12
_MAX_COMPARED: Final = 1_000
"""The number of names that a misspelt name is compared with. Comparing more would take too long."""


def no_such_context(storage: Storage, name: str, where: str = "this store") -> NoSuchContext:
    """Return the error for a missing context, with similar names and the first names in the store."""
    from difflib import get_close_matches

    names = list(islice(list_contexts(storage), _MAX_COMPARED))
    is_all = len(names) < _MAX_COMPARED
    nearby = () if is_all else islice(list_contexts(storage, name[: max(len(name) // 2, len(name) - 3)]), _MAX_COMPARED)
    near = get_close_matches(name, dict.fromkeys((*names, *nearby)), n=3)
    guess = f"Did you mean {' or '.join(map(short_repr, near))}? " if near else ""
    listed = ", ".join(map(short_repr, names[:_MAX_LISTED])) or "none"
    more = f" and {f'{len(names) - _MAX_LISTED:,} ' if is_all else ''}more" if len(names) > _MAX_LISTED else ""
    return NoSuchContext(
        f"No context {short_repr(name)} in {where}. {guess}Contexts there: {listed}{more}.", context=name
    )
