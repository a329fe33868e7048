"""ContextSystem: every operation on pages and segments, without permission checks.

Each method takes the lock, plans, commits and applies; the rules are in the planning modules beside this one.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from quire.clock import Clock, system_clock
from quire.engine import Engine
from quire.errors import Conflict, InvalidOperation, InvalidValue, StorageFailure, shown
from quire.pages import Page, PageIndex, Permission, Segment, format_index
from quire.plan import Plan
from quire.reader import slot
from quire.records import PageRecord, segment_number
from quire.state import State
from quire.storage.base import Storage, check_context_name, check_path, check_storage
from quire.storage.memory import MemoryStorage
from quire.storage.migrate import Progress, Report
from quire.storage.migrate import migrate as copy_context
from quire.system import document, lifecycle, segments, tree
from quire.system.check import Problem, check
from quire.system.find import Hit, find
from quire.system.journal import Entry, history, undo
from quire.system.present import to_page, to_segment
from quire.system.rules import child_of, whole_number
from quire.text import one_line
from quire.tokens import TokenCounter, VocabularyCounter

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_MAX_PAGES = 10_000
DEFAULT_MAX_BYTES = 64 << 20
_CHUNK = 256


class ContextSystem:
    """One context's pages and segments. Safe to share between threads.

    `storage` is any backend (in memory by default), `context` the name of the context in it, created by the first
    change. `actor` is who the journal names. At most `max_pages` pages and `max_bytes` of bodies stay in memory.
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
    ) -> None:
        self.actor = one_line(actor, "actor", 100, empty=False)
        self._engine = Engine(
            MemoryStorage() if storage is None else check_storage(storage),
            check_context_name(context),
            clock=clock,
            counter=counter or VocabularyCounter(),
            max_pages=whole_number(max_pages, "max_pages"),
            max_bytes=whole_number(max_bytes, "max_bytes"),
        )

    def acting_as(self, actor: str) -> "ContextSystem":
        """The same context, cache and lock under another actor's name in the journal. Nothing else changes: this face
        checks no permissions, whoever the actor is."""
        face = object.__new__(type(self))
        face.actor = one_line(actor, "actor", 100, empty=False)
        face._engine = self._engine
        return face

    def __repr__(self) -> str:
        return f"<ContextSystem {self.context!r} at seq {self._engine.state.version}, acting as {self.actor!r}>"

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

    # Segments

    def add_segment(self, segment: Segment) -> Segment:
        """Add a segment and its root page; the segment as stored."""
        self.run("add_segment", segments.add_segment, segment)
        return self.get_segment(segment.id)

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages, cold ones too; how many pages went."""
        return self.run("remove_segment", segments.remove_segment, segment_id)

    def get_segment(self, segment_id: str) -> Segment:
        """The segment with this id. Raises `NoSuchSegment`."""
        return self._read(lambda state: _segment(state, state.live_segment(segment_id)))

    def list_segments(self) -> list[Segment]:
        """All segments in display order."""
        return self._read(lambda state: [to_segment(state, number, found) for number, found in state.live_segments()])

    def segment_of(self, index: PageIndex) -> Segment:
        """The segment a page is in. Raises `NoSuchPage`."""
        return self._read(lambda state: _segment(state, segment_number(state.live(index).key)))

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

    # Pages: reading

    def get_page(self, index: PageIndex) -> Page:
        """The page with this index, in whatever state it is. Raises `NoSuchPage`."""
        return self._read(lambda state: to_page(state, state.live(index)))

    def load_page(self, index: PageIndex) -> Page:
        """The page as stored now, past the cache."""

        def load(state: State) -> Page:
            key = state.key_of(index)
            if key is not None:
                state.evict(key)
            return to_page(state, state.live(index))

        return self._read(load)

    def detail(self, index: PageIndex) -> str:
        """The body of a leaf. Raises `InvalidOperation` for a folder."""

        def read(state: State) -> str:
            record = state.live(index)
            if record.header.folder:
                raise InvalidOperation(f"{index!r} is a ContentsPage and has no detail; children({index!r}) lists it.")
            return state.body(record.header.body)

        return self._read(read)

    def children(self, index: PageIndex, *, after: PageIndex | None = None, limit: int | None = None) -> list[Page]:
        """A folder's children in order, hot ones included, cold ones not; a part of them with `after` and `limit`."""

        def read(state: State) -> list[Page]:
            record = _folder(state, index)
            start = None if after is None else slot(child_of(state, record, after, "after"))
            found = islice(state.members(record.key, after=start), _limit(limit))
            return [to_page(state, page) for page in found]

        return self._read(read)

    def has_child(self, index: PageIndex, child: PageIndex) -> bool:
        """Whether the folder lists that page."""

        def read(state: State) -> bool:
            record, other = _folder(state, index), state.live(child)
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
        return self._read(lambda state: [to_page(state, page) for page in state.ancestors(state.live(index))])

    def list_pages(self, segment_id: str | None = None) -> Iterator[Page]:
        """All pages of a segment or of the context, archived ones included. Streams."""
        number = None if segment_id is None else self._read(lambda state: state.live_segment(segment_id))
        pages = self._read(lambda state: state.segment_pages(number))
        return self._stream(pages, lambda state, page: to_page(state, page))

    def walk(self, index: PageIndex) -> Iterator[tuple[int, Page]]:
        """A page and all below it, parents first, each with its depth. Streams."""
        pairs = self._read(lambda state: state.subtree(state.live(index)))
        return self._stream(pairs, lambda state, pair: (pair[0], to_page(state, pair[1])))

    def find(self, query: str, limit: int = 10) -> list[Hit]:
        """The pages that hold every word of the query in name, description or detail, best first."""
        return self._read(lambda state: find(state, query, limit))

    # History

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self._read(lambda state: state.version)

    def history(self, after: int = 0) -> Iterator[Entry]:
        """The journal entries above `after`, oldest first. Streams."""
        return self._read(lambda state: history(state, whole_number(after, "after")))

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep all that came after; the seq of the new entry.

        Raises `InvalidOperation` naming the later entry if one changed the same record. Undoing an undo redoes.
        """
        with self._engine.lock:
            plan = self._engine.begin(self.actor)
            seq = undo(plan, entry)
            self._engine.commit(plan, "undo", undoes=seq)
            return plan.seq

    def check(self) -> list[Problem]:
        """Everything that is wrong with this context, invariant by invariant; an empty list when nothing is."""
        return self._read(check)

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

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def set_storage(self, target: Storage, *, migrate: bool = False, progress: Report | None = None) -> None:
        """Go on with this context in another storage. With `migrate`, copy it there first.

        Without, the target must already hold this very state of it.
        """
        check_storage(target)
        if not isinstance(migrate, bool):
            raise InvalidValue(f"migrate is {shown(migrate)}; True or False is needed.")
        with self._engine.lock:
            state = self._engine.current()
            if migrate and not state.is_at(state.storage.head(state.context)):
                raise Conflict(f"Context {state.context!r} was changed by another writer: refresh() and retry.")
            if migrate:
                self.migrate(target, progress=progress)
            self._engine.switch(target)

    def migrate(self, target: Storage, *, progress: Report | None = None) -> Progress:
        """Copy this context to another storage, streaming and verified; called again, an interrupted copy goes on."""
        with self._engine.lock:
            state = self._engine.current()
            check_storage(target)
            if not state.version:  # nothing was ever written
                return Progress(context=state.context, phase="done", records=0, bytes=0)
            return copy_context(state.storage, target, state.context, progress=progress)

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything."""
        return self._engine.refresh()

    # JSON

    def marshal(self) -> bytes:
        """The whole context as JSON in the form of the design documents."""
        return self._read(document.marshal)

    def unmarshal(self, data: bytes | str) -> None:
        """Replace the whole context by a JSON document, in one undoable commit. `InvalidValue` names a bad place."""
        self.run("unmarshal", document.unmarshal, data)

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


def _segment(state: State, number: int) -> Segment:
    record = state.segment(number)
    if record is None:
        raise InvalidValue(f"No segment number {number}.")
    return to_segment(state, number, record)


def _folder(state: State, index: PageIndex) -> PageRecord:
    record = state.live(index)
    if not record.header.folder:
        raise InvalidOperation(f"{index!r} is a DetailPage and has no children; detail({index!r}) reads it.")
    return record


def _limit(limit: int | None) -> int | None:
    return None if limit is None else whole_number(limit, "limit")
