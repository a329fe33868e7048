"""The operations that run with storage faults."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from quire import (
    Context,
    ContextSystem,
    DetailPage,
    EstimateCounter,
    Library,
    MemoryStorage,
    Storage,
    backup,
    migrate,
)
from quire.conversation.turn import Turn
from quire.core import lease
from quire.core.codec import decode_head
from quire.storage.base import list_contexts
from quire.storage.contract import FAMILIES, Record, StoredEntry
from tests.test_faults import CHANGES, SEVERAL_COMMITS, library, opened, seen

DEAD = "of a dead worker"
PURGED, PURGED_TEXT = "mem-6", b"deep text"


class Case(NamedTuple):
    """An operation: where it starts, a handle on that, and what a user sees."""

    source: Callable[[], Storage]
    handle: Callable[[Storage], Any]
    operation: Callable[[Any], object]
    see: Callable[[Any], object]
    in_steps: bool = False
    """True if it makes several commits: a failed one can leave a part, and the repeated one must complete it."""


def _turn(talk: Context) -> None:
    kept, lease.LEASE_SECONDS = lease.LEASE_SECONDS, 0.1  # a lease that could not be released must end soon
    try:
        with talk.turn(key="k"):
            talk.user("a question")
            talk.assistant("an answer")
    finally:
        lease.LEASE_SECONDS = kept


def _after_a_dead_turn(storage: Storage) -> Context:
    """Return a handle on the conversation after a worker died in its turn."""
    talk = opened(storage)
    if all(message.text != DEAD for message in talk.messages(all=True)):
        other = opened(storage)
        engine, name = other.pages._engine, other.name
        with _dead_workers():
            held = lease.acquire(storage, name, key="dead", keep=False, wait=0, newest=lambda: _newest(storage, name))
        engine.turn = Turn(engine, held, "dead")
        other.user(DEAD)
        talk.refresh()
    return talk


def _newest(storage: Storage, name: str) -> tuple[int, int]:
    """Return the last entry of a context, and the highest number of a turn in its head."""
    found = storage.load(name)
    return (found.seq, decode_head(found.seq, found.head).turn) if found else (0, 0)


@contextmanager
def _dead_workers() -> Iterator[None]:
    """Let every worker that has a lease be a dead one."""
    kept, lease.is_dead = lease.is_dead, lambda process: True
    try:
        yield
    finally:
        lease.is_dead = kept


def _turn_after_a_dead_one(talk: Context) -> None:
    with _dead_workers():
        _turn(talk)


def _erase(talk: Context) -> None:
    talk.refresh()
    books = Library(talk.pages.storage)
    if not books.exists("branch"):
        talk.pages.fork("branch")
    books.erase("branch")


def _fold(talk: Context) -> None:
    talk.refresh()
    folded = Context(talk.pages, budget=500, preamble="")
    if all(len(message.text) < 900 for message in folded.messages()):
        folded.import_messages([{"role": "user", "content": f"{number} " + "word " * 200} for number in range(6)])
    folded.render()


def _migrate(talk: Context) -> None:
    migrate(talk.pages.storage, MemoryStorage(), [talk.name])


def _back_up(talk: Context) -> None:
    with TemporaryDirectory() as folder:
        backup(talk.pages.storage, Path(folder) / "copy.db")


@cache
def _without_batch() -> Storage:
    """Return the same context after its batch was committed: a purge refuses an open one."""
    storage = MemoryStorage()
    migrate(library(), storage)
    opened(storage).conversation.batch_commit()
    return storage


def _purge(pages: ContextSystem) -> None:
    pages.refresh()
    if pages.storage.load("branch") is None:
        pages.fork("branch")
    pages.purge(PURGED)


def _traces(pages: ContextSystem) -> object:
    """Return the texts of the context and of its fork, and the records that have the text to purge."""
    pages.refresh()
    storage = pages.storage
    found = []
    for name in list_contexts(storage):
        handle = ContextSystem(storage, name, counter=EstimateCounter())
        texts = {page.index: handle.detail(page.index) for page in handle.list_pages() if isinstance(page, DetailPage)}
        found.append((name, texts))
    return found, [record for name in storage.contexts() for record in _with_purged_text(storage, name)]


def _with_purged_text(storage: Storage, name: str) -> Iterator[Record | StoredEntry]:
    """Yield the records and the entries of a context, or of a companion, that have the text to purge."""
    loaded = storage.load(name)
    if loaded is not None:
        for family in FAMILIES:
            yield from (record for record in storage.scan(loaded.id, family) if PURGED_TEXT in record.value)
        yield from (stored for stored in storage.entries(loaded.id) if PURGED_TEXT in stored.head + stored.entry)


def _messages(talk: Context) -> object:
    """Return what is the same however often an operation was tried: the journal also has the failed tries."""
    talk.refresh()
    return [message.text for message in talk.messages()], list(list_contexts(talk.pages.storage))


STEPS: dict[str, Callable[[Context], None]] = {
    "turn": _turn,
    "fold": _fold,
    "erase": _erase,
    "migrate": _migrate,
    "backup": _back_up,
}


def _cases() -> dict[str, Case]:
    changes = {name: operation for name, operation in CHANGES.items() if name not in SEVERAL_COMMITS}
    cases = {f"change: {name}": Case(library, opened, operation, seen) for name, operation in changes.items()}
    steps = {
        f"in steps: {name}": Case(library, opened, operation, _messages, in_steps=True)
        for name, operation in STEPS.items()
    }
    steps["in steps: undo of a dead turn"] = Case(
        library, _after_a_dead_turn, _turn_after_a_dead_one, _messages, in_steps=True
    )
    steps["in steps: purge"] = Case(
        _without_batch, lambda storage: opened(storage).pages, _purge, _traces, in_steps=True
    )
    return cases | steps


CASES = _cases()
