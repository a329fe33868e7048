"""The operations on a context's history: looking back, going back, and branching off."""

from collections.abc import Iterator
from datetime import datetime
from os import PathLike
from typing import Any

from quire.errors import InvalidOperation, StorageFailure
from quire.pages import PageIndex
from quire.storage.base import check_context_name, check_path
from quire.system.face import Face
from quire.system.journal import Entry, export, history
from quire.system.reverting import checkpoint, checkpoints, messages_at, rollback, undo
from quire.system.rules import whole_number, yes_or_no


class Timeline(Face):
    """History, undo, checkpoints, rollback and forks."""

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self._read(lambda state: state.version)

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
        """The journal entries above `after` (and below `before`) that pass every filter, oldest first. Streams.

        `reverse` gives the newest first.
        """
        start = whole_number(after, "after")
        filters: dict[str, Any] = {"actor": actor, "operation": operation, "page": page, "since": since, "until": until}
        newest_first = yes_or_no(reverse, "reverse")
        if before is not None:
            filters["before"] = whole_number(before, "before")
        return self._read(lambda state: history(state, start, reverse=newest_first, **filters))

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep all that came after; the seq of the new entry.

        Raises `InvalidOperation` naming the later entry if one changed the same record. Undoing an undo redoes.
        """
        with self._engine.lock:
            plan = self._engine.begin(self.actor)
            seq = undo(plan, entry)
            self._engine.commit(plan, "undo", undoes=seq)
            return plan.seq

    def audit(self, path: str | PathLike[str], **filters: Any) -> int:
        """Write the journal to a file as JSON Lines, one entry a line; how many. The filters are those of `history`."""
        target = check_path(path)
        entries = self.history(**filters)
        try:
            with open(target, "wb") as file:
                return export(entries, file)
        except OSError as error:
            raise StorageFailure(f"Cannot write {str(path)!r}: {error}.") from error

    def checkpoint(self, name: str) -> int:
        """Name the state of the context, to come back to with `rollback(name)`; its seq."""
        return self.run("checkpoint", checkpoint, name)

    def checkpoints(self) -> dict[str, int]:
        """All checkpoints with their seqs, oldest first."""
        return self._read(checkpoints)

    def rollback(self, to: str | int | Entry) -> int:
        """Bring the whole context back to a checkpoint or an entry, in one commit that can be undone; its seq.

        Permissions and pins stay as they are. What came since stays readable, and `undo` brings it back.
        """
        with self._engine.lock:
            self.run("rollback", rollback, to)
            return self._engine.state.version

    def fork(self, new_name: str, at: str | int | Entry | None = None) -> None:
        """Make another context of this one in the same storage, as it is or as it was at a checkpoint or an entry.

        Both go their own ways afterwards, and each survives the other. The fork's journal starts there.
        """
        target = check_context_name(new_name)
        with self._engine.lock:
            plan = self._engine.begin(self.actor)
            if plan.state.storage.head(target) is not None:
                raise InvalidOperation(f"Context {target!r} exists already; choose another name for the fork.")
            seq = plan.state.version if at is None else rollback(plan, at)
            self._engine.fork(plan, target, messages_at(plan, seq))
