"""What of a store's address may be shown.

Addresses hold passwords, and people mistype them: one that is not understood is quoted up to where a secret may begin.

File names for anything: no name, however hostile, leaves its folder or meets another on any file system.

What an examination finds, in words: what it is, how bad it is, and what would repair it.

The storage seam: opaque records in a few families, and one atomic, version-checked write.

A backend knows bytes and nothing of pages, so a new page type needs no migration. What a backend cannot do atomically
is not in the protocol. `quire.testing.StorageContract` is the suite that any backend can run.

A context that is not there: what was perhaps meant, and what is there, at the cost of a few names.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from msgspec import Struct

from quire.errors import Conflict, InvalidValue, NoSuchContext, short_repr

_SECRET: Final = re.compile("pass|pwd|secret|token|credential|signature|key", re.IGNORECASE)
_SETTING: Final = re.compile(rf"[\w.-]*(?:{_SECRET.pattern})[\w.-]*\s*[=:]\s*", re.IGNORECASE)
_URL: Final = re.compile(r"(?is)(?<![a-z0-9])(?!file:|sqlite:|memory:)([a-z][a-z0-9+.-]+):(?:/|(?=.*@))")
_SETTINGS: Final = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_LONGEST: Final = 500
"""No address is longer; of what is, the rest is not looked at and not shown."""
_URL_AS_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def veiled(text: str) -> str:
    """A text that may be an address, up to where a secret may begin."""
    if len(text) > _LONGEST:
        return f"{veiled(text[:_LONGEST])}…"
    url, setting = _URL.search(text), _SETTING.search(text)
    if url and (not setting or url.start() < setting.start()):
        return f"{text[: url.end(1)]}://…"
    return f"{text[: setting.end()]}…" if setting else text


def is_no_path(text: str) -> bool:
    """Whether a text is plainly an address or settings (`host=… password=…`), and no path of a file."""
    return bool(_URL_AS_PATH.match(text) or (_SETTINGS.match(text) and veiled(text[:_LONGEST]) != text[:_LONGEST]))


def is_secret(setting: str) -> bool:
    """Whether the value of a setting of this name is a secret."""
    return bool(_SECRET.search(setting))


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
_MAX = 120


def file_name(name: str) -> str:
    """A safe name that is the text itself when it is plain: lower-case letters, digits, `_` and `-`.

    Everything else is written as `%` and two hex digits a byte, capitals too, so that names stay apart where case does
    not count. A long one is cut and closed by a hash.
    """
    parts = [char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in name]
    if name in _RESERVED or not name:
        parts.insert(0, "%")
    text = "".join(parts)
    if len(text) > _MAX:
        from hashlib import sha256  # here, because few names are so long and importing it is slow

        text = f"{text[: _MAX - 34]}%-{sha256(name.encode()).hexdigest()[:32]}"
    return text


def plain_name(file: str) -> str | None:
    """The text whose file name this is; None if it is that of none, or of one that was cut."""
    if _PLAIN.issuperset(file) and 0 < len(file) <= _MAX and file not in _RESERVED:
        return file
    first, *others = file.split("%")
    if not first and others and (others[0] in _RESERVED or others == [""]):
        return others[0]
    try:
        parts = (bytes.fromhex(part[:2]) + part[2:].encode() for part in others)
        name = (first.encode() + b"".join(parts)).decode()
    except ValueError:
        return None
    return name if file_name(name) == file else None


Severity = Literal["note", "warning", "error"]
"""`note`: good to know. `warning`: nothing is lost, something should be done. `error`: something is damaged."""


class Symptom(Struct, frozen=True, kw_only=True):
    """One thing that is wrong: a stable `code`, where it is, what it means, what would repair it, and whether it was.

    `context` is empty if it is about the store as a whole.
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


Family = Literal["segment", "page", "body", "journal", "tally", "pin", "message", "call", "note", "anchor", "vector"]
SEGMENT: Final = "segment"
PAGE: Final = "page"
BODY: Final = "body"
JOURNAL: Final = "journal"
TALLY: Final = "tally"
PIN: Final = "pin"
MESSAGE: Final = "message"
CALL: Final = "call"
NOTE: Final = "note"
ANCHOR: Final = "anchor"
VECTOR: Final = "vector"
FAMILIES: Final[tuple[Family, ...]] = (
    SEGMENT,
    PAGE,
    BODY,
    JOURNAL,
    TALLY,
    PIN,
    MESSAGE,
    CALL,
    NOTE,
    ANCHOR,
    VECTOR,
)
IMMUTABLE: Final[frozenset[Family]] = frozenset({BODY, MESSAGE})
"""Families whose records are written once, under keys that only grow: a fork may share them instead of copying."""
GROUPED: Final[frozenset[Family]] = frozenset({PAGE})
"""Families whose records can stand in a group; the others are reached by key alone."""

Durability = Literal["normal", "full"]
"""`normal`: an acknowledged commit survives `kill -9`. `full`: power loss too."""

KEY_BITS: Final = 38
MAX_KEY: Final = (1 << KEY_BITS) - 1
MAX_GROUP: Final = (1 << (KEY_BITS + 1)) - 1


class Record(Struct, frozen=True, gc=False):
    """One stored record: its key, its value and, in a grouped family, its group and its order therein."""

    key: int
    value: bytes
    group: int | None = None
    order: bytes = b""


class Put(Struct, frozen=True, gc=False):
    """Write a whole record, new or not."""

    family: Family
    key: int
    value: bytes
    group: int | None = None
    order: bytes = b""


class Patch(Struct, frozen=True, gc=False):
    """Give an existing record a new value and leave its group and order alone."""

    family: Family
    key: int
    value: bytes


class Delete(Struct, frozen=True, gc=False):
    """Remove a record; removing what is not there is fine."""

    family: Family
    key: int


Write = Put | Patch | Delete


class Head(Struct, frozen=True, gc=False):
    """Where a context stands: its version (a negative one is a copy under way) and its head value."""

    version: int
    value: bytes


class Commit(Struct, frozen=True, gc=False):
    """All of one commit. It applies only if the context is still at `expect` (0: does not exist yet).

    `seen`, if given, is the head value the writer saw at that version: a context that was dropped and made again may
    be at the same version, but its head is another.
    """

    expect: int
    version: int
    head: bytes
    writes: Sequence[Write]
    seen: bytes = b""

    def follows(self, head: Head | None) -> bool:
        """Whether this commit may follow on that head."""
        version = head.version if head else 0
        return version == self.expect and (head is None or not self.seen or head.value == self.seen)


class Storage(Protocol):
    """What every backend offers. All of it is safe to call from several threads.

    A backend may offer more, and is asked whether it does: `search(context)` keeps the search index of a context (see
    `storage.searching`), `snapshot(context)` shows it at one moment while others write, `scrub(contexts)` clears the
    store of the bytes of everything that was deleted or overwritten in these contexts and that nobody reads any more
    (and says what only others can still do, if there is something),
    `opened(context)` gives the head and what else was read in the same look (`storage.nearby`),
    `examine(repair=…)` tells what is wrong with the store itself (`storage.symptoms`), `whole(context)` gives a small
    context as it is at one moment to be looked at in memory, or None.
    """

    def head(self, context: str) -> Head | None:
        """Where the context stands now, or None if it does not exist."""

    def get(self, context: str, family: Family, key: int) -> Record | None:
        """One record, or None."""

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        """The records with start ≤ key ≤ stop, by key. Streams; the lock is not held between records."""

    def members(
        self,
        context: str,
        family: Family,
        group: int,
        *,
        after: tuple[bytes, int] | None = None,
        reverse: bool = False,
    ) -> Iterator[Record]:
        """The records of a group by (order, key), those strictly after the given place. Streams."""

    def commit(self, context: str, commit: Commit) -> None:
        """Apply every write or none. Raises `Conflict` if the context is not at `expect`, `Busy` if it is locked."""

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        """Make `target` at once: all records of `context` but its journal, then the commit on top of them.

        Of a family in `below` only the records with smaller keys go over. `context` must be where the commit expects
        it and `target` must not exist, else `Conflict`. The two are independent afterwards: what they share underneath
        is the backend's business, and dropping one leaves the other whole.
        """

    def contexts(self, after: str = "") -> Iterator[str]:
        """The names of all contexts greater than `after`, in code-point order. Streams."""

    def drop(self, context: str) -> None:
        """Remove a context with all its records, at once. A context that does not exist is fine."""

    def close(self) -> None:
        """Release files and connections. Closing twice is fine."""


def conflict(context: str, head: Head | None, expect: int) -> Conflict:
    """The error for a commit that does not follow on the head."""
    stands = f"is at version {head.version}" if head else "does not exist"
    wanted = f"not at {expect}" if head is None or head.version != expect else "but was made anew"
    return Conflict(f"Context {context!r} {stands}, {wanted}: refresh() and retry.")


def fork_by_copy(storage: Storage, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
    """`Storage.fork` for a backend that shares nothing: one commit that holds everything."""
    check_context_name(target)
    head = storage.head(context)
    if head is None or not commit.follows(head):
        raise conflict(context, head, commit.expect)
    writes: list[Write] = [
        Put(family, record.key, record.value, record.group, record.order)
        for family in FAMILIES
        if family != JOURNAL
        for record in storage.scan(context, family, 0, below.get(family, MAX_KEY + 1) - 1)
    ]
    if storage.head(context) != head:
        raise conflict(context, storage.head(context), commit.expect)
    if (found := storage.head(target)) is not None:
        raise conflict(target, found, 0)
    storage.commit(target, Commit(0, commit.version, commit.head, [*writes, *commit.writes]))


@contextmanager
def at_rest(storage: Storage, context: str) -> Iterator[Storage]:
    """A storage that shows the context at one moment while others write; the storage itself if it has no `snapshot`."""
    take = getattr(storage, "snapshot", None)
    if take is None:
        yield storage
    else:
        with take(context) as still:
            yield still


def check_storage(value: object) -> Storage:
    """The value if it speaks the protocol. Raises `InvalidValue`."""
    methods = ("head", "get", "scan", "members", "commit", "fork", "contexts", "drop", "close")
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise InvalidValue(
            f"{short_repr(value)} is no storage. open_storage(url) opens one; one has {', '.join(methods)}."
        )
    return cast(Storage, value)


def check_durability(value: object) -> Durability:
    """The value if it is a durability. Raises `InvalidValue`."""
    if value not in ("normal", "full"):
        raise InvalidValue(f"durability is {short_repr(value)}; use 'normal' or 'full'.")
    return value


def check_path(value: object) -> Path:
    """The value as a path that the file system can be asked for. Raises `InvalidValue`, also for a URL of a server."""
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if isinstance(text, str) and text.strip() and "\0" not in text and len(text) < 4_096:
            try:
                text.encode()
            except UnicodeEncodeError:
                pass
            else:
                if not is_no_path(text):
                    return Path(text)
        value = veiled(text) if isinstance(text, str) else text
    raise InvalidValue(f"path is {short_repr(value)}; the path of a file or folder is needed.")


def check_context_name(name: object) -> str:
    """The name if it can name a context. Raises `InvalidValue`."""
    if isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and name == name.strip():
        return name
    raise InvalidValue(
        f"Context name {short_repr(name)} is not allowed; use 1 to 200 printable characters without outer spaces."
    )


_MOST_NAMES: Final = 12
_MOST_COMPARED: Final = 1_000
"""Names that a misspelt one is compared with; more would take too long for a word of help."""


def no_such_context(storage: Storage, name: str, where: str = "this store") -> NoSuchContext:
    """The error for a name that names no context; it tells names that are near, and the first ones there are."""
    from difflib import get_close_matches

    names = list(islice(storage.contexts(), _MOST_COMPARED))
    is_all = len(names) < _MOST_COMPARED
    beside = () if is_all else islice(storage.contexts(name[: max(len(name) // 2, len(name) - 3)]), _MOST_COMPARED)
    near = get_close_matches(name, dict.fromkeys((*names, *beside)), n=3)
    meant = f"Did you mean {' or '.join(map(short_repr, near))}? " if near else ""
    listed = ", ".join(map(short_repr, names[:_MOST_NAMES])) or "none"
    more = f" and {f'{len(names) - _MOST_NAMES:,} ' if is_all else ''}more" if len(names) > _MOST_NAMES else ""
    return NoSuchContext(
        f"No context {short_repr(name)} in {where}. {meant}Contexts there: {listed}{more}.", context=name
    )
