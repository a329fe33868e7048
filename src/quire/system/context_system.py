"""What every face on a context shares: the engine, an actor's name, and the way to plan and to read.

The operations that look at segments and pages and change nothing.

The operations that change segments and pages. Each plans, commits and applies; the rules are in the planners.

The operations on a context's history: looking back, going back, and branching off.

The operations on memory, storage and files: what is kept where.

The operation that really removes a page: with every trace, from this context, its forks and the store's bytes.

ContextSystem: every operation on pages and segments, without permission checks.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.core.reader import slot
from quire.core.records import PageRecord, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, StorageFailure, short_repr
from quire.model.clock import Clock, system_clock
from quire.model.pages import Lifecycle, Page, PageIndex, Permission, Segment, format_index
from quire.model.text import one_line
from quire.model.tokens import TokenCounter, VocabularyCounter
from quire.storage.base import Storage, check_context_name, check_path, check_storage
from quire.storage.memory import MemoryStorage
from quire.storage.migrate import Progress, Report, copy_contexts
from quire.storage.overlay import OverlayStorage
from quire.system import lifecycle, segments, tree
from quire.system.check import Problem, check
from quire.system.journal import Entry, export, history
from quire.system.json_form import marshal, unmarshal
from quire.system.rules import child_of, whole_number, yes_or_no
from quire.system.to_public import to_page, to_segment, to_text
from quire.system.undo import checkpoint, checkpoints, messages_at, rollback, undo

if TYPE_CHECKING:
    from quire.search.find import Hit
    from quire.search.vectors import Embedder
    from quire.system.purge import Purged


P = ParamSpec("P")
T = TypeVar("T")
_CHUNK = 256


class Face:
    """One engine under one actor's name. Several faces can share an engine, and so its lock and its cache."""

    def __init__(self, engine: Engine, actor: str) -> None:
        self.actor = one_line(actor, "actor", 100, empty=False)
        self._engine = engine

    @classmethod
    def beside(cls, other: "Face") -> Self:
        """This kind of face on the engine of another, under the same name."""
        face = object.__new__(cls)
        Face.__init__(face, other._engine, other.actor)
        return face

    def acting_as(self, actor: str) -> Self:
        """The same context, cache and lock under another actor's name in the journal. Nothing else changes: this face
        checks no permissions, whoever the actor is."""
        face = object.__new__(type(self))
        Face.__init__(face, self._engine, actor)
        return face

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def run(self, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Plan something with the planning functions, commit it as one journal entry, and return the plan's result.

        All operations below are made of it; several planned steps in one planner are one all-or-nothing commit.
        """
        engine = self._engine
        with engine.lock:
            plan = engine.begin(self.actor)
            result = planner(plan, *args, **kwargs)
            engine.commit(plan, operation)
            return result

    def _read(self, look: Callable[[State], T]) -> T:
        with self._engine.lock:
            return look(self._engine.current())

    def _stream(self, items: Iterator[Any], hand_out: Callable[[State, Any], T]) -> Iterator[T]:
        """The items, a chunk at a time under the lock, so that a long walk never keeps writers waiting."""
        while True:
            with self._engine.lock:
                state = self._engine.current()
                chunk = [hand_out(state, item) for item in islice(items, _CHUNK)]
            yield from chunk
            if len(chunk) < _CHUNK:
                return


class Reading(Face):
    """Looking at segments and pages."""

    # Segments

    def get_segment(self, segment_id: str) -> Segment:
        """The segment with this id. Raises `NoSuchSegment`."""
        return self._read(lambda state: to_segment(state, state.live_segment(segment_id)))

    def list_segments(self) -> list[Segment]:
        """All segments in display order."""
        return self._read(lambda state: [to_segment(state, number) for number, _ in state.live_segments()])

    def segment_of(self, index: PageIndex) -> Segment:
        """The segment a page is in. Raises `NoSuchPage`."""
        return self._read(lambda state: to_segment(state, segment_number(state.require_page(index).key)))

    # Pages: reading

    def get_page(self, index: PageIndex) -> Page:
        """The page with this index, in whatever state it is. Raises `NoSuchPage`."""
        return self._read(lambda state: to_page(state, state.require_page(index)))

    def load_page(self, index: PageIndex) -> Page:
        """The page as stored now, past the cache."""

        def load(state: State) -> Page:
            key = state.key_of(index)
            if key is not None:
                state.evict(key)
            return to_page(state, state.require_page(index))

        return self._read(load)

    def names(self, indices: Iterable[PageIndex]) -> dict[PageIndex, str]:
        """The names of pages by their indices; what names no page is left out. Raises `InvalidValue`."""
        if isinstance(indices, str | bytes) or not isinstance(indices, Iterable):
            raise InvalidValue(f"indices is {short_repr(indices)}; several page indices are needed.")

        def read(state: State) -> dict[PageIndex, str]:
            keys = ((index, state.key_of(index)) for index in indices)
            pages = ((index, state.page(key)) for index, key in keys if key is not None)
            return {index: page.header.name for index, page in pages if isinstance(page, PageRecord)}

        return self._read(read)

    def detail(self, index: PageIndex) -> str:
        """The body of a leaf. Raises `InvalidOperation` for a folder."""

        def read(state: State) -> str:
            record = state.require_page(index)
            if record.header.folder:
                raise InvalidOperation(f"{index!r} is a ContentsPage and has no detail; children({index!r}) lists it.")
            return to_text(state, record.header)

        return self._read(read)

    def children(
        self, index: PageIndex, *, after: PageIndex | None = None, limit: int | None = None, cold: bool = False
    ) -> list[Page]:
        """A folder's children in order, hot ones included, cold ones not; a part of them with `after` and `limit`.

        With `cold` instead those in the cold archive that stood in this folder.
        """

        yes_or_no(cold, "cold")

        def read(state: State) -> list[Page]:
            record = _folder(state, index)
            start = None if after is None else slot(child_of(state, record, after, "after", cold=cold))
            found = islice(state.members(record.key, after=start, cold=cold), _limit(limit))
            return [to_page(state, page) for page in found]

        return self._read(read)

    def has_child(self, index: PageIndex, child: PageIndex) -> bool:
        """Whether the folder lists that page."""

        def read(state: State) -> bool:
            record, other = _folder(state, index), state.require_page(child)
            return other.parent == record.key and not other.is_cold

        return self._read(read)

    def child_count(self, index: PageIndex) -> int:
        """How many children a folder has, without reading them."""
        return self._read(lambda state: state.child_count(_folder(state, index).key))

    def parent(self, index: PageIndex) -> Page | None:
        """The folder a page stands in; None for a root and for a page that was archived cold."""
        return next(iter(self.ancestors(index)), None)

    def ancestors(self, index: PageIndex) -> list[Page]:
        """The folders above a page, nearest first."""
        return self._read(lambda state: [to_page(state, page) for page in state.ancestors(state.require_page(index))])

    def list_pages(self, segment_id: str | None = None) -> Iterator[Page]:
        """All pages of a segment or of the context, archived ones included. Streams."""
        number = None if segment_id is None else self._read(lambda state: state.live_segment(segment_id))
        pages = self._read(lambda state: state.segment_pages(number))
        return self._stream(pages, lambda state, page: to_page(state, page))

    def walk(self, index: PageIndex) -> Iterator[tuple[int, Page]]:
        """A page and all below it, parents first, each with its depth. Streams."""
        pairs = self._read(lambda state: state.subtree(state.require_page(index)))
        return self._stream(pairs, lambda state, pair: (pair[0], to_page(state, pair[1])))

    def find(
        self,
        query: str,
        limit: int = 10,
        *,
        segment: str | None = None,
        kind: str | None = None,
        lifecycle: Lifecycle | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        actor: str | None = None,
    ) -> "list[Hit]":
        """The pages that answer a query by name, description or detail, archived ones too, best first.

        Those that hold every word come first. `"quoted words"` must stand in a row, `begin*` may go on; there are no
        other operators. The filters bound what is found: `kind` (folder, leaf, exchange, chapter, summary, text),
        `role` (who speaks), the effective `lifecycle`, the time of making, the author. Raises `InvalidValue`.
        """
        from quire.search.find import find  # late: not every program searches

        filters: dict[str, Any] = {
            "segment": segment,
            "kind": kind,
            "lifecycle": lifecycle,
            "role": role,
            "actor": actor,
        }
        embedder = self._engine.embedder
        return self._read(
            lambda state: find(state, query, limit, embedder=embedder, since=since, until=until, **filters)
        )

    def check(self) -> list[Problem]:
        """Everything that is wrong with this context, invariant by invariant; an empty list when nothing is."""
        return self._read(check)


def _folder(state: State, index: PageIndex) -> PageRecord:
    record = state.require_page(index)
    if not record.header.folder:
        raise InvalidOperation(f"{index!r} is a DetailPage and has no children; detail({index!r}) reads it.")
    return record


def _limit(limit: int | None) -> int | None:
    return None if limit is None else whole_number(limit, "limit")


class Editing(Face):
    """Changing segments and pages."""

    # Segments

    def add_segment(self, segment: Segment) -> Segment:
        """Add a segment and its root page; the segment as stored."""
        self.run("add_segment", segments.add_segment, segment)
        return self._read(lambda state: to_segment(state, state.live_segment(segment.id)))

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages, cold ones too; how many pages went."""
        return self.run("remove_segment", segments.remove_segment, segment_id)

    def update_segment(
        self,
        segment_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        max_capacity: int | None = None,
    ) -> None:
        """Change a segment's name, description or capacity; None leaves it as it is."""
        self.run(
            "update_segment",
            segments.update_segment,
            segment_id,
            name=name,
            description=description,
            max_capacity=max_capacity,
        )

    def set_segment_permission(self, segment_id: str, permission: Permission) -> None:
        """Set what the agent may do in a segment. No undo or rollback brings an older permission back."""
        self.run("set_segment_permission", segments.set_segment_permission, segment_id, permission)

    # Pages: creating and changing

    def create_detail_page(
        self,
        name: str,
        description: str,
        detail: str,
        parent: PageIndex,
        *,
        pinned: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PageIndex:
        """Add a leaf with a text at the end of a folder. `pinned=None` pins in SYSTEM segments only."""
        return self.run(
            "create_detail_page",
            tree.create_detail_page,
            name,
            description,
            detail,
            parent,
            pinned=pinned,
            meta=meta,
        )

    def create_contents_page(
        self,
        name: str,
        description: str,
        parent: PageIndex,
        children: Iterable[PageIndex] = (),
        *,
        pinned: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> PageIndex:
        """Add a folder and gather the given pages of the same segment under it, in the given order.

        It stands at the end of its parent, or where its first child stood if that was in the same parent.
        """
        return self.run(
            "create_contents_page",
            tree.create_contents_page,
            name,
            description,
            parent,
            children,
            pinned=pinned,
            meta=meta,
        )

    def add_page(self, page: Page, detail: str | None = None) -> PageIndex:
        """Add a page that carries its index and parent; an index of `""` takes the next one."""
        return self.run("add_page", tree.add_page, page, detail)

    def update_page(
        self,
        index: PageIndex,
        *,
        name: str | None = None,
        description: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Change a page's name, description or meta; None leaves it as it is, `""` clears a description."""
        self.run("update_page", tree.update_page, index, name=name, description=description, meta=meta)

    def set_detail(self, index: PageIndex, detail: str) -> None:
        """Give a text page another body."""
        self.run("set_detail", tree.set_detail, index, detail)

    def move_page(
        self, source: PageIndex, target: PageIndex, before: PageIndex | None = None
    ) -> dict[PageIndex, PageIndex]:
        """Move a page with its subtree into a folder, at its end or before one of its children.

        In another segment the pages get new indices: the dict gives old → new. Within one segment it is empty.
        """
        return self.run("move_page", tree.move_page, source, target, before)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with everything below it; how many pages went. undo() brings them back."""
        return self.run("remove_page", tree.remove_page, index)

    def generate_index(self, segment_id: str) -> PageIndex:
        """An index of the segment that was never used, taken out of use for `add_page`."""
        with self._engine.lock:
            state = self._engine.current()
            return format_index(segment_id, state.reserve(state.live_segment(segment_id)))

    # Pages: what is shown

    def expand(self, index: PageIndex) -> None:
        """Open a page and the whole chain above it."""
        self.run("expand", lifecycle.expand, index)

    def hide(self, index: PageIndex) -> None:
        """Show only the page's summary line."""
        self.run("hide", lifecycle.hide, index)

    def archive(self, index: PageIndex, *, cold: bool = False) -> None:
        """Take a page out of the window. Cold, it leaves the tree with its subtree until `recall`."""
        self.run("archive", lifecycle.archive, index, cold=cold)

    def restore(self, index: PageIndex) -> None:
        """Bring a hot page back into the window as it was, opening the chain above it."""
        self.run("restore", lifecycle.restore, index)

    def recall(self, index: PageIndex) -> PageIndex:
        """Bring the cold subtree that holds this page back to its place, or under the root if that is gone."""
        return self.run("recall", lifecycle.recall, index)

    def pin(self, index: PageIndex) -> None:
        """Show a page whole, always: it and all above it cannot be hidden, moved or removed until `unpin`."""
        self.run("pin", lifecycle.pin, index)

    def unpin(self, index: PageIndex) -> None:
        """Lift a pin."""
        self.run("unpin", lifecycle.unpin, index)


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

    def audit(self, /, path: str | PathLike[str], **filters: Any) -> int:
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


class Keeping(Face):
    """Memory, storage and JSON."""

    # Memory and storage

    def evict_page(self, index: PageIndex) -> None:
        """Forget a page's cached copy; nothing stored changes."""

        def evict(state: State) -> None:
            key = state.key_of(index)
            if key is not None:
                state.evict(key)

        self._read(evict)

    def evict_lru(self, max_pages: int) -> int:
        """Forget the least recently used cached pages beyond `max_pages`; how many went. Pinned pages stay."""
        return self._read(lambda state: state.evict_lru(whole_number(max_pages, "max_pages")))

    @property
    def cached_pages(self) -> int:
        """How many pages are in memory."""
        return self._read(lambda state: len(state.cached()))

    @property
    def storage(self) -> Storage:
        """The storage in use."""
        return self._engine.state.storage

    def set_storage(self, target: Storage, *, migrate: bool = False, progress: Report | None = None) -> None:
        """Go on with this context in another storage. With `migrate`, copy it there first.

        Without, the target must already hold this very state of it.
        """
        check_storage(target)
        yes_or_no(migrate, "migrate")
        with self._engine.lock:
            state = self._engine.current()
            if migrate and (outdated := state.outdated()):
                raise outdated
            if migrate:
                self.migrate(target, progress=progress)
            self._engine.switch(target)

    def migrate(self, target: Storage, *, progress: Report | None = None) -> Progress:
        """Copy this context to another storage, streaming and verified; called again, an interrupted copy goes on."""
        with self._engine.lock:
            state = self._engine.current()
            check_storage(target)
            if isinstance(state.storage, OverlayStorage):
                raise InvalidOperation("Work is held back here: leave temporary() first, then migrate.")
            if not state.version:  # nothing was ever written
                return Progress(context=state.context, phase="done", records=0, bytes=0)
            return copy_contexts(state.storage, target, state.context, progress=progress)

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything. `NoSuchContext` if it was deleted."""
        return self._engine.refresh()

    # JSON

    def marshal(self) -> bytes:
        """The whole context as JSON in the form of the design documents."""
        return self._read(marshal)

    def unmarshal(self, data: bytes | str) -> None:
        """Replace the whole context by a JSON document, in one undoable commit. `InvalidValue` names a bad place."""
        self.run("unmarshal", unmarshal, data)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `marshal()` to a file."""
        target = check_path(path)
        data = self.marshal()
        try:
            fresh = target.with_name(target.name + ".new")
            with open(fresh, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)  # a reader sees the old file or the new one
        except (OSError, ValueError) as error:
            raise StorageFailure(f"Cannot write {str(path)!r}: {error}.") from error

    def load(self, path: str | os.PathLike[str]) -> None:
        """`unmarshal()` a file."""
        try:
            data = check_path(path).read_bytes()
        except OSError as error:
            raise StorageFailure(f"Cannot read {str(path)!r}: {error}.") from error
        self.unmarshal(data)


class Erasing(Face):
    """Removing for good."""

    def purge(self, *indices: PageIndex, forks: bool = True) -> "Purged":
        """Remove pages and every trace of them, those below them too: for secrets, and for the right to be forgotten.

        It cannot be undone, and nothing before it can be: what they said is taken out of texts, messages, history,
        search, vectors and anchors, summaries above them are made anew, and the store is rewritten so that none of
        their bytes is left. Pages that were removed, moved or marked before are purged by the index they had. With
        `forks`, they leave every context of this store that was forked from the same one, too. The numbers of purged
        messages stay in use. Raises `NoSuchPage`; `InvalidOperation` for a root, a pinned page, an open window, an
        open exchange, and while a batch or a temporary block is open, here or in a fork.
        """
        yes_or_no(forks, "forks")
        from quire.system.purge import purge_pages  # late: it is rarely needed

        with self._engine.lock:
            return purge_pages(self._engine, self.actor, indices, forks=forks)

    def scrub(self) -> None:
        """Clear the store of bytes that were deleted or overwritten in this context. `purge` does it by itself.

        Raises `Busy` if others keep the store from being rewritten.
        """
        with self._engine.lock:
            state = self._engine.current()
            clear: Any = getattr(state.storage, "scrub", None)
            if clear is not None:
                clear([state.context])


DEFAULT_MAX_PAGES = 10_000
DEFAULT_MAX_BYTES = 64 << 20


class ContextSystem(Editing, Reading, Timeline, Keeping, Erasing):
    """One context's pages and segments. Safe to share between threads.

    `storage` is any backend (in memory by default), `context` the name of the context in it, created by the first
    change. `actor` is who the journal names. At most `max_pages` pages and `max_bytes` of bodies stay in memory.
    With an `embedder`, `find` also knows pages that say it in other words.
    """

    def __init__(
        self,
        storage: Storage | None = None,
        context: str = "default",
        *,
        actor: str = "developer",
        counter: TokenCounter | None = None,
        clock: Clock = system_clock,
        max_pages: int = DEFAULT_MAX_PAGES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        embedder: "Embedder | None" = None,
    ) -> None:
        engine = Engine(
            MemoryStorage() if storage is None else check_storage(storage),
            check_context_name(context),
            clock=clock,
            counter=counter or VocabularyCounter(),
            max_pages=whole_number(max_pages, "max_pages"),
            max_bytes=whole_number(max_bytes, "max_bytes"),
        )
        if embedder is not None and not callable(embedder):
            raise InvalidValue(f"embedder is {short_repr(embedder)}; a callable from texts to vectors is needed.")
        engine.embedder = embedder
        super().__init__(engine, actor)

    @property
    def counter(self) -> TokenCounter:
        """What counts tokens here."""
        return self._engine.counter

    def opened(self, context: str) -> "ContextSystem":
        """Another context of the same storage, with this one's counter, clock and limits."""
        engine, state = self._engine, self._engine.state
        return ContextSystem(
            state.storage,
            context,
            actor=self.actor,
            counter=engine.counter,
            clock=engine.clock,
            max_pages=state.max_pages,
            max_bytes=state.max_bytes,
            embedder=engine.embedder,
        )

    def as_of(self, to: str | int | Entry) -> "ContextSystem":
        """This context as a rollback to a checkpoint or an entry would leave it, to look at.

        It is kept in memory over the same storage: whatever is done to it reaches nobody. Raises `InvalidValue`.
        """
        engine, state = self._engine, self._engine.current()
        past = ContextSystem(
            OverlayStorage(state.storage, self.context),
            self.context,
            actor=self.actor,
            counter=engine.counter,
            clock=engine.clock,
            max_pages=state.max_pages,
            max_bytes=state.max_bytes,
            embedder=engine.embedder,
        )
        past.rollback(to)
        return past

    def __repr__(self) -> str:
        return f"<ContextSystem {self.context!r} at seq {self._engine.state.version}, acting as {self.actor!r}>"
