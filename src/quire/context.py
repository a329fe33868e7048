"""Context: one agent's book, opened by URL, path or storage."""

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from quire.errors import Conflict, InvalidValue, shown
from quire.pages import Permission, Segment, SegmentType
from quire.plan import Plan
from quire.storage.base import Durability, Storage
from quire.storage.opening import storage_at
from quire.system import ContextSystem, Entry, Hit, Problem
from quire.system.rules import whole_number
from quire.system.segments import add_segment
from quire.tokens import TokenCounter

DEFAULT_BUDGET = 128_000
DEFAULT_SEGMENTS: tuple[Segment, ...] = (
    Segment(
        id="sys",
        name="System",
        description="The system prompt",
        type=SegmentType.SYSTEM,
        permission=Permission.READ_ONLY,
    ),
    Segment(id="mem", name="Memory", description="The agent's own notes", type=SegmentType.CUSTOM),
    Segment(id="usr", name="Conversation", description="The conversation", type=SegmentType.USER),
    Segment(id="win", name="Windows", description="Live windows", type=SegmentType.TOOL),
)


class Context:
    """One agent's book. Use `quire.open`; close it or use it in a `with` block.

    `pages` is the developer's face: every operation on pages and segments, without permission checks.
    """

    def __init__(self, pages: ContextSystem, *, budget: int = DEFAULT_BUDGET, owned: Storage | None = None) -> None:
        self.pages = pages
        self.budget = whole_number(budget, "budget")
        self._owned = owned

    def __repr__(self) -> str:
        return f"<Context {self.pages!r}, budget {self.budget:,}>"

    @property
    def name(self) -> str:
        """The name of this context in its storage."""
        return self.pages.context

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self.pages.seq

    def find(self, query: str, limit: int = 10) -> list[Hit]:
        """The pages that hold every word of the query, best first."""
        return self.pages.find(query, limit)

    def history(self, after: int = 0) -> Iterator[Entry]:
        """The journal entries above `after`, oldest first. Streams."""
        return self.pages.history(after)

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep all that came after; the seq of the new entry."""
        return self.pages.undo(entry)

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything."""
        return self.pages.refresh()

    def check(self) -> list[Problem]:
        """Everything that is wrong with this context; an empty list when nothing is."""
        return self.pages.check()

    def close(self) -> None:
        """Release the storage, if this context opened it. Nothing is lost by not closing."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(  # noqa: A001 - quire.open is the name users expect
    where: str | os.PathLike[str] | Storage,
    context: str = "default",
    *,
    budget: int = DEFAULT_BUDGET,
    durability: Durability = "normal",
    counter: TokenCounter | None = None,
    segments: Sequence[Segment] | None = None,
) -> Context:
    """Open a context, creating it with its segments if it is new.

    `where` is `memory:`, `file:DIR`, `sqlite:FILE`, a path (SQLite), or a storage object, which stays the caller's to
    close. `segments` replaces the usual four at creation.
    """
    storage, owns = storage_at(where, durability=durability)
    try:
        owned = storage if owns else None
        return open_in(storage, context, budget=budget, counter=counter, segments=segments, owned=owned)
    except BaseException:
        if owns:
            storage.close()
        raise


def open_in(
    storage: Storage,
    context: str,
    *,
    budget: int = DEFAULT_BUDGET,
    counter: TokenCounter | None = None,
    segments: Sequence[Segment] | None = None,
    owned: Storage | None = None,
) -> Context:
    """Open a context in an open storage."""
    opened = Context(ContextSystem(storage, context, counter=counter), budget=budget, owned=owned)
    if opened.seq == 0:
        try:
            opened.pages.run("create", _create, DEFAULT_SEGMENTS if segments is None else segments)
        except Conflict:  # someone else created it a moment ago: theirs is as good
            opened.refresh()
    return opened


def _create(plan: Plan, segments: Sequence[Segment]) -> None:
    if not isinstance(segments, list | tuple):
        raise InvalidValue(f"segments is {shown(segments)}; a list of quire.Segment is needed.")
    for segment in segments:
        add_segment(plan, segment)
