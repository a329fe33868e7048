"""Handles: the classes through which a program uses one context.

A public operation is written once. `quire.Context` inherits those that programs use most: `ContextHandle` has those on
pages and history, `MessageHandle` those on messages, and `ViewHandle` those on views.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import msgspec

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.errors import StorageFailure, names_options
from quire.model.pages import PageIndex
from quire.model.text import check_one_line
from quire.storage.paths import check_path, make_private
from quire.system import lifecycle
from quire.system.check import Problem, check
from quire.system.checkpoints import checkpoint
from quire.system.journal import Entry, history
from quire.system.undo import rollback, undo

if TYPE_CHECKING:
    from typing import Unpack

    from quire.search.find import FindFilters, Hit
    from quire.system.journal import HistoryFilters

P = ParamSpec("P")
T = TypeVar("T")


class Handle:
    """Operations of one context by one actor. All handles of an open context share its engine."""

    def __init__(self, engine: Engine, actor: str) -> None:
        self._engine = engine
        self.actor = check_one_line(actor, "actor", 100, empty=False)

    def _run(self, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Commit what a planner plans, and return its result. The journal has the planner's name as the operation."""
        return self._engine.run(self.actor, planner.__name__, planner, *args, **options)


@names_options
class ContextHandle(Handle):
    """Search, pins and the history of a context."""

    def find(self, /, query: str, limit: int = 10, **filters: "Unpack[FindFilters]") -> "list[Hit]":
        """Return the pages that match a query by name, description or detail, archived ones too, best first.

        Pages that contain every word come first. `"quoted words"` match as a phrase, `begin*` matches a prefix; there
        are no other operators. The filters limit the result: `segment`, `kind` (folder, leaf, exchange, chapter,
        summary, text), `role` (of a message), the effective `lifecycle`, `since` and `until` (the time of creation),
        `actor` (the author). Raises `InvalidValue`, and `UnknownOption` for another filter.
        """
        from quire.search.find import find  # imported late: not every program searches

        embedder = self._engine.embedder
        return self._engine.read(lambda state: find(state, query, limit, embedder=embedder, **filters))

    def pin(self, index: PageIndex) -> None:
        """Always show a page in full: it and all above it cannot be hidden, moved or removed until `unpin`."""
        self._run(lifecycle.pin, index)

    def unpin(self, index: PageIndex) -> None:
        """Remove a pin."""
        self._run(lifecycle.unpin, index)

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self._engine.read(lambda state: state.version)

    def history(
        self,
        after: int = 0,
        *,
        actor: str | None = None,
        operation: str | None = None,
        page: PageIndex | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry]:
        """Yield the journal entries above `after` (and below `before`) that pass every filter.

        The oldest comes first, with `reverse` the newest. `page` is an index that exists or existed; `since` and
        `until` are inclusive.
        """
        filters = {"actor": actor, "operation": operation, "page": page, "since": since, "until": until}
        return self._engine.read(lambda state: history(state, after, before, reverse=reverse, **filters))

    def audit(self, /, path: str | os.PathLike[str], **filters: "Unpack[HistoryFilters]") -> int:
        """Write the journal to a file as JSON Lines, one entry per line; return the number of entries.

        The filters are those of `history`.
        """
        entries, count = self.history(**filters), 0
        with file_errors(path, "write") as target:
            make_private(target)
            with target.open("wb") as file:
                for entry in entries:
                    file.write(msgspec.json.encode(entry) + b"\n")
                    count += 1
        return count

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep later ones; return the seq of the new entry.

        Raises `InvalidOperation`, which names the later entry, if that entry changed the same record. Undo an undo to
        redo.
        """
        with self._engine.lock:
            plan = self._engine.begin(self.actor)
            seq = undo(plan, entry)
            self._engine.commit(plan, "undo", undoes=seq)
            return plan.seq

    def checkpoint(self, name: str) -> int:
        """Name the present state of the context for `rollback(name)`; return its seq."""
        return self._run(checkpoint, name)

    def rollback(self, to: str | int | Entry) -> int:
        """Return the whole context to a checkpoint or an entry, in one commit that can be undone; return its seq.

        Permissions and pins do not change. The entries since then stay readable, and `undo` restores them.
        """
        with self._engine.lock:
            self._run(rollback, to)
            return self._engine.state.version

    def refresh(self) -> bool:
        """Load new commits of other writers; return True if there are any. Raises `NoSuchContext` after a deletion."""
        return self._engine.refresh()

    def check(self) -> list[Problem]:
        """Return every broken invariant of this context; an empty list if it is sound."""
        return self._engine.read(check)


@contextmanager
def file_errors(path: str | os.PathLike[str], doing: str) -> Iterator[Path]:
    """Give a path to a block that reads or writes a file. Raises `StorageFailure` if the system cannot do it."""
    target = check_path(path)
    try:
        yield target
    except (OSError, ValueError) as error:
        raise StorageFailure(f"Cannot {doing} {str(path)!r}: {error}.") from error
