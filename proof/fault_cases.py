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
from quire.core.records import decode_head
from quire.storage.base import FAMILIES, RESERVED
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
            held = lease.acquire(
                storage,
                name,
                key="dead",
                keep=False,
                wait=0,
                before=lambda: storage.head(name),
                turn_of=lambda head: decode_head(head.value).turn,
            )
        engine.turn = Turn(engine, held, "dead")
        other.user(DEAD)
        talk.refresh()
    return talk


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
    if pages.storage.head("branch") is None:
        pages.fork("branch")
    pages.purge(PURGED)


def _traces(pages: ContextSystem) -> object:
    """Return the texts of the context and of its fork, and the records that have the text to purge."""
    pages.refresh()
    storage = pages.storage
    found = []
    for name in storage.contexts():
        handle = ContextSystem(storage, name, counter=EstimateCounter())
        left = [
            (family, record.key)
            for family in FAMILIES
            for record in storage.scan(name, family)
            if PURGED_TEXT in record.value
        ]
        texts = {page.index: handle.detail(page.index) for page in handle.list_pages() if isinstance(page, DetailPage)}
        found.append((name, texts, left))
    return found


def _messages(talk: Context) -> object:
    """Return what is the same however often an operation was tried: the journal also has the failed tries."""
    talk.refresh()
    names = sorted(name for name in talk.pages.storage.contexts() if not name.startswith(RESERVED))
    return [message.text for message in talk.messages()], names


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
