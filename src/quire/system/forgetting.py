"""Carrying out a purge: in the forks of a context, in the context itself, in search, and in the bytes of the store."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from quire.engine import Engine
from quire.errors import Busy, InvalidOperation, StorageFailure
from quire.pages import PageIndex
from quire.records import decode_head
from quire.search.catalogue import index_of
from quire.search.catching import PURGE
from quire.state import State
from quire.storage.base import Storage
from quire.system.purging import Traces, Written, purge, purgeable, share


class Purged(Struct, frozen=True, kw_only=True):
    """What a purge took away: pages by the indices they had, how many texts and messages, from which contexts.

    Where an earlier purge took everything there are no pages and no contexts, and nothing is committed.
    `entries` of the history were rewritten without it. `seq` is the entry of the purge, which holds no text. If the
    store could not be cleared of its bytes (`scrubbed` is False), `problem` says why: call `scrub()` again later.
    """

    seq: int
    pages: tuple[PageIndex, ...]
    texts: int
    messages: int
    entries: int
    contexts: tuple[str, ...]
    scrubbed: bool = True
    problem: str = ""


def purge_pages(engine: Engine, actor: str, indices: Sequence[PageIndex], *, forks: bool) -> Purged:
    """Purge pages here and, if asked, in every context of the same family. The engine's lock is held."""
    state = engine.current()
    mine = Traces(Written(state), purgeable(state, indices))
    found = [(engine, mine)]
    if forks:
        found[:0] = _in_relatives(engine, mine)
        share([traces for _, traces in found])
    pages = () if mine.is_spent() else tuple(state.index(key) for key in sorted(mine.keys))
    done = [_Purge(one, actor, traces) for one, traces in found if not traces.is_spent()]
    for work in done:  # this context last: were it interrupted, the same call does the rest
        work.commit()
    names = [work.engine.state.context for work in done]
    everywhere = [one.state.context for one, _ in found]
    for name in everywhere:
        index_of(state.storage, name)
    problem = scrub(state.storage, everywhere)
    return Purged(
        seq=engine.state.version,
        pages=pages,
        texts=len(mine.bodies),
        messages=len(mine.numbers),
        entries=sum(work.entries for work in done),
        contexts=tuple(reversed(names)),
        scrubbed=not problem,
        problem=problem,
    )


def _in_relatives(engine: Engine, mine: Traces) -> Iterator[tuple[Engine, Traces]]:
    for name in _relatives(mine.state):
        other = engine.beside(name)
        written = Written(other.state)
        keys = mine.counterparts(written)
        if keys:
            yield other, Traces(written, keys)


class _Purge:
    """The purge of one context, planned, to be committed."""

    def __init__(self, engine: Engine, actor: str, traces: Traces) -> None:
        self.engine = engine
        self._plan = engine.begin(actor)
        try:
            self.entries = purge(self._plan, traces)
        except InvalidOperation as error:
            raise InvalidOperation(f"In context {engine.state.context!r}: {error}") from None

    def commit(self) -> None:
        self.engine.commit(self._plan, PURGE)
        self.engine.forget()


def _relatives(state: State) -> Iterator[str]:
    """The contexts that were forked from this one, or from the same one as this."""
    storage = state.storage
    family = state.head.family or state.head.identity
    for name in list(storage.contexts()):
        head = storage.head(name) if name != state.context else None
        if head is not None and head.version > 0:
            other = decode_head(head.value)
            if family in (other.family, other.identity):
                yield name


def scrub(storage: Storage, contexts: Sequence[str]) -> str:
    """Clear the storage of what was deleted; what kept it from that, or nothing."""
    clear: Any = getattr(storage, "scrub", None)
    if clear is not None:
        try:
            return clear(contexts) or ""
        except (Busy, StorageFailure) as error:
            return str(error)
    return ""
