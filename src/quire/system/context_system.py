"""ContextSystem: every operation on the pages and segments of one context, without permission checks.

Each operation that changes something is planned by a planning function (`tree`, `segments`, `lifecycle`, `undo`, …) and
committed by the engine as one journal entry.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any

from quire.core.context_copy import Progress, ProgressCallback, copy_contexts
from quire.core.engine import Clock, Engine, system_clock
from quire.core.reader import slot_of
from quire.core.records import PageRecord, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, names_options, short_repr
from quire.model.pages import Page, PageIndex, Permission, Segment, SegmentType, format_index
from quire.model.text import indent_lines
from quire.model.tokens import TokenCounter, VocabularyCounter, check_counter
from quire.storage.base import check_context_name, check_storage
from quire.storage.contract import Storage
from quire.storage.memory import MemoryStorage
from quire.storage.overlay import OverlayStorage
from quire.system import lifecycle, segments, tree
from quire.system.check import check_whole
from quire.system.checkpoints import checkpoints
from quire.system.handle import ContextHandle, file_errors
from quire.system.journal import Entry
from quire.system.rules import check_bool, check_whole_number, require_child
from quire.system.tree import find_folder, to_page, to_segment
from quire.system.undo import messages_at, rollback

if TYPE_CHECKING:
    from quire.search.vectors import Embedder
    from quire.system.purge import Purged

DEFAULT_MAX_PAGES = 10_000
DEFAULT_MAX_BYTES = 64 << 20


@names_options
class ContextSystem(ContextHandle):
    """The pages and segments of one context. Safe to share between threads.

    `storage` is any backend (in memory by default). `context` is the name of the context in it; the first change
    creates it. `actor` is the name that the journal records. At most `max_pages` pages and `max_bytes` of bodies stay
    in memory. With an `embedder`, `find` also finds pages by meaning. `redact` removes secrets from every text before
    it is stored.
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
        redact: Callable[[str], str] | None = None,
        _engine: Engine | None = None,  # an engine to share; then only `actor` of the other options is used
    ) -> None:
        if embedder is not None and not callable(embedder):
            raise InvalidValue(f"is {short_repr(embedder)}; a callable is needed.", argument="embedder")
        redaction = None
        if redact is not None:
            from quire.core.redaction import Redaction  # imported late: few programs redact

            redaction = Redaction(redact)
            if redaction.text(context) != context:
                raise InvalidValue("The name of the context has a text to redact. Choose another name.")
        engine = _engine or Engine(
            MemoryStorage() if storage is None else check_storage(storage),
            check_context_name(context),
            clock=clock,
            counter=VocabularyCounter() if counter is None else check_counter(counter),
            max_pages=check_whole_number(max_pages, "max_pages"),
            max_bytes=check_whole_number(max_bytes, "max_bytes"),
            embedder=embedder,
            redaction=redaction,
        )
        super().__init__(engine, actor)

    def __repr__(self) -> str:
        return f"<ContextSystem {self.context!r} at seq {self._engine.state.version}, acting as {self.actor!r}>"

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    @property
    def counter(self) -> TokenCounter:
        """The token counter of this context."""
        return self._engine.counter

    def acting_as(self, actor: str) -> "ContextSystem":
        """Return the same context, cache and lock under another actor's name in the journal.

        No permissions are checked, whoever the actor is.
        """
        return ContextSystem(actor=actor, _engine=self._engine)

    # Segments

    def get_segment(self, segment_id: str) -> Segment:
        """Return the segment with this id. Raises `NoSuchSegment`."""
        return self._engine.read(lambda state: to_segment(state, state.require_segment(segment_id)))

    def list_segments(self) -> list[Segment]:
        """Return all segments in display order."""
        return self._engine.read(lambda state: [to_segment(state, number) for number, _ in state.live_segments()])

    def segment_of(self, index: PageIndex) -> Segment:
        """Return the segment of a page. Raises `NoSuchPage`."""
        return self._engine.read(lambda state: to_segment(state, segment_number(state.require_page(index).key)))

    def add_segment(self, segment: Segment) -> Segment:
        """Add a segment and its root page; return the segment as stored."""
        self._run(segments.add_segment, segment)
        return self.get_segment(segment.id)

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages, cold ones too; return the number of pages removed."""
        return self._run(segments.remove_segment, segment_id)

    def update_segment(
        self,
        segment_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        max_capacity: int | None = None,
        type: SegmentType | None = None,
    ) -> None:
        """Change a segment's name, description, capacity or type. None means no change.

        A type is refused if messages, prompts or windows would then be in a segment of the wrong type.
        """
        update = segments.update_segment
        self._run(update, segment_id, name=name, description=description, max_capacity=max_capacity, type=type)

    def set_segment_permission(self, segment_id: str, permission: Permission) -> None:
        """Set the permission of the agent in a segment. Undo and rollback never restore an older permission."""
        self._run(segments.set_segment_permission, segment_id, permission)

    # Reading pages

    def get_page(self, index: PageIndex) -> Page:
        """Return the page with this index, archived ones included. Raises `NoSuchPage`."""
        return self._engine.read(lambda state: to_page(state, state.require_page(index)))

    def load_page(self, index: PageIndex) -> Page:
        """Drop the cached copy of a page and read the page from the storage."""
        with self._engine.lock:
            self.evict_page(index)
            return self.get_page(index)

    def names(self, indices: Iterable[PageIndex]) -> dict[PageIndex, str]:
        """Return the names of pages by index; an index without a page is left out. Raises `InvalidValue`."""
        if isinstance(indices, str | bytes) or not isinstance(indices, Iterable):
            raise InvalidValue(f"is {short_repr(indices)}; several page indices are needed.", argument="indices")

        def read(state: State) -> dict[PageIndex, str]:
            keys = ((index, state.key_of(index)) for index in indices)
            pages = ((index, state.page(key)) for index, key in keys if key is not None)
            return {index: page.header.name for index, page in pages if isinstance(page, PageRecord)}

        return self._engine.read(read)

    def detail(self, index: PageIndex, *, quoted: bool = False) -> str:
        """Return the body of a leaf. Raises `InvalidOperation` for a folder.

        With `quoted`, every line is indented except lines that name a speaker, so that no text can imitate a speaker.
        """
        check_bool(quoted, "quoted")

        def read(state: State) -> str:
            header = state.require_page(index).header
            if header.folder:
                hint = Hint("children", index, purpose="to list its pages")
                raise InvalidOperation(f"{index!r} is a folder and has no text.", hint)
            text = tree.to_text(state, header, quoted=quoted)
            return indent_lines(text) if quoted and not header.numbers else text

        return self._engine.read(read)

    def children(
        self, index: PageIndex, *, after: PageIndex | None = None, limit: int | None = None, cold: bool = False
    ) -> list[Page]:
        """Return a folder's children in order. `after` and `limit` select a part.

        Hot-archived pages are children of their folder; cold-archived pages are not. With `cold`, return the
        cold-archived pages that were in this folder instead.
        """
        check_bool(cold, "cold")

        def read(state: State) -> list[Page]:
            record = find_folder(state, index)
            start = None if after is None else slot_of(require_child(state, record, after, "after", cold=cold))
            most = None if limit is None else check_whole_number(limit, "limit")
            return [to_page(state, page) for page in islice(state.members(record.key, after=start, cold=cold), most)]

        return self._engine.read(read)

    def has_child(self, index: PageIndex, child: PageIndex) -> bool:
        """Return True if the folder lists that page."""

        def read(state: State) -> bool:
            folder, other = find_folder(state, index), state.require_page(child)
            return other.parent == folder.key and not other.is_cold

        return self._engine.read(read)

    def child_count(self, index: PageIndex) -> int:
        """Return the number of a folder's children without reading them."""
        return self._engine.read(lambda state: state.child_count(find_folder(state, index).key))

    def parent(self, index: PageIndex) -> Page | None:
        """Return the folder of a page; None for a root and for a page in the cold archive."""
        return next(iter(self.ancestors(index)), None)

    def ancestors(self, index: PageIndex) -> list[Page]:
        """Return the folders above a page, nearest first."""
        return self._engine.read(
            lambda state: [to_page(state, page) for page in state.ancestors(state.require_page(index))]
        )

    def list_pages(self, segment_id: str | None = None) -> Iterator[Page]:
        """Iterate over all pages of a segment or of the context, archived ones included."""
        engine = self._engine
        number = None if segment_id is None else engine.read(lambda state: state.require_segment(segment_id))
        return engine.stream(engine.read(lambda state: state.segment_pages(number)), to_page)

    def walk(self, index: PageIndex) -> Iterator[tuple[int, Page]]:
        """Iterate over a page and all pages below it, parents first, each with its depth."""
        pairs = self._engine.read(lambda state: state.subtree(state.require_page(index)))
        return self._engine.stream(pairs, lambda state, pair: (pair[0], to_page(state, pair[1])))

    # Creating and changing pages

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
        return self._run(tree.create_detail_page, name, description, detail, parent, pinned=pinned, meta=meta)

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
        """Add a folder and move the given pages of the same segment into it, in the given order.

        The folder goes to the end of its parent, or to the place of its first child if that was in the same parent.
        """
        return self._run(tree.create_contents_page, name, description, parent, children, pinned=pinned, meta=meta)

    def add_page(self, page: Page, detail: str | None = None) -> PageIndex:
        """Add a page that carries its index and parent; the index `""` takes the next free one."""
        return self._run(tree.add_page, page, detail)

    def update_page(
        self,
        index: PageIndex,
        name: str | None = None,
        description: str | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        detail: str | None = None,
    ) -> None:
        """Change a page's name, description, meta or body. None means no change, `""` clears a description."""
        self._run(tree.update_page, index, name=name, description=description, meta=meta, detail=detail)

    def set_detail(self, index: PageIndex, detail: str) -> None:
        """Replace the body of a text page."""
        self._run(tree.set_detail, index, detail)

    def move_page(
        self, source: PageIndex, target: PageIndex, before: PageIndex | None = None
    ) -> dict[PageIndex, PageIndex]:
        """Move a page with its subtree into a folder, to its end or before one of its children.

        In another segment the pages get new indices: the dict maps old to new. Within one segment it is empty.
        """
        return self._run(tree.move_page, source, target, before)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with everything below it; return the number of pages removed. `undo` restores them."""
        return self._run(tree.remove_page, index)

    def generate_index(self, segment_id: str) -> PageIndex:
        """Reserve an unused index of the segment for `add_page` and return it."""
        return self._engine.read(
            lambda state: format_index(segment_id, state.reserve(state.require_segment(segment_id)))
        )

    # Visibility and lifecycle

    def expand(self, index: PageIndex) -> None:
        """Open a page and all folders above it."""
        self._run(lifecycle.expand, index)

    def hide(self, index: PageIndex) -> None:
        """Show only the page's summary line."""
        self._run(lifecycle.hide, index)

    def archive(self, index: PageIndex, *, cold: bool = False) -> None:
        """Take a page out of the view. With `cold`, it leaves the tree with its subtree until `recall`."""
        self._run(lifecycle.archive, index, cold=cold)

    def restore(self, index: PageIndex) -> None:
        """Bring a hot-archived page back into the view unchanged and open all folders above it."""
        self._run(lifecycle.restore, index)

    def recall(self, index: PageIndex) -> PageIndex:
        """Bring the cold-archived subtree of a page back to its place, or under the root if that place is gone."""
        return self._run(lifecycle.recall, index)

    # History

    def checkpoints(self) -> dict[str, int]:
        """Return all checkpoints with their seqs, oldest first."""
        return self._engine.read(checkpoints)

    def fork(self, new_name: str, at: str | int | Entry | None = None, *, check: bool = False) -> None:
        """Create another context in the same storage from this one, as of now or of a checkpoint or an entry.

        Both are independent afterwards: either can be changed or deleted. The journal of the fork starts with the fork.
        With `check`, all records of this context are read first: `Corrupt` names a damaged one, and nothing is created.
        """
        target = check_context_name(new_name)
        check_bool(check, "check")
        with self._engine.lock:
            plan = self._engine.begin(self.actor)
            if check:
                check_whole(plan.state)
            if plan.state.storage.load(target) is not None:
                raise InvalidOperation(f"Context {target!r} exists already; choose another name for the fork.")
            seq = plan.state.version if at is None else rollback(plan, at)
            self._engine.fork(plan, target, messages_at(plan, seq))

    def as_of(self, to: str | int | Entry) -> "ContextSystem":
        """Return this context as a rollback to a checkpoint or an entry would leave it, for reading.

        It is an overlay in memory: changes to it are never stored. Raises `InvalidValue`.
        """
        storage = OverlayStorage(self._engine.current().storage, self.context)
        past = ContextSystem(actor=self.actor, _engine=self._engine.open_context(self.context, storage))
        past.rollback(to)
        return past

    # Memory and storage

    def evict_page(self, index: PageIndex) -> None:
        """Drop a page's cached copy; the stored page does not change."""
        self._engine.read(lambda state: None if (key := state.key_of(index)) is None else state.evict(key))

    def evict_lru(self, max_pages: int) -> int:
        """Drop the least recently used cached pages above `max_pages`; return how many. Pinned pages are kept."""
        return self._engine.read(lambda state: state.evict_lru(check_whole_number(max_pages, "max_pages")))

    @property
    def cached_pages(self) -> int:
        """The number of pages in memory."""
        return self._engine.read(lambda state: len(state.cached_pages()))

    @property
    def storage(self) -> Storage:
        """The storage in use."""
        return self._engine.state.storage

    def set_storage(self, target: Storage, *, migrate: bool = False, progress: ProgressCallback | None = None) -> None:
        """Continue with this context in another storage. With `migrate`, copy it there first.

        Without `migrate`, the target must already hold this version of the context.
        """
        check_storage(target)
        check_bool(migrate, "migrate")
        with self._engine.lock:
            state = self._engine.current()
            if migrate and (outdated := state.outdated_error()):
                raise outdated
            if migrate:
                self.migrate(target, progress=progress)
            self._engine.switch_storage(target)

    def migrate(self, target: Storage, *, progress: ProgressCallback | None = None) -> Progress:
        """Copy this context to another storage and verify the copy."""
        with self._engine.lock:
            state = self._engine.current()
            check_storage(target)
            if isinstance(state.storage, OverlayStorage):
                raise InvalidOperation("Changes are held in memory inside a temporary block. Leave the block first.")
            if not state.version:  # nothing was ever written
                return Progress(context=state.context, phase="done", records=0, bytes=0)
            return copy_contexts(state.storage, target, state.context, progress=progress)

    # JSON

    def marshal(self) -> bytes:
        """Return the whole context as JSON in the form of the design documents."""
        from quire.system.json_form import marshal  # imported late: few programs need it

        return self._engine.read(marshal)

    def unmarshal(self, data: bytes | str) -> None:
        """Replace the whole context by a JSON document in one undoable commit. `InvalidValue` names a bad field."""
        from quire.system.json_form import unmarshal  # imported late: few programs need it

        self._run(unmarshal, data)

    def save(self, path: str | PathLike[str]) -> None:
        """Write `marshal()` to a file."""
        data = self.marshal()
        with file_errors(path, "write") as target:
            fresh = target.with_name(target.name + ".new")
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)  # a reader sees the old file or the new one

    def load(self, path: str | PathLike[str]) -> None:
        """Read a file and `unmarshal` it."""
        with file_errors(path, "read") as source:
            data = source.read_bytes()
        self.unmarshal(data)

    # Erasure

    def purge(self, *indices: PageIndex, forks: bool = True) -> "Purged":
        """Remove pages, the pages below them and every trace of them: for secrets and the right to be forgotten.

        It cannot be undone, and nothing before it can be undone afterwards. The content is removed from texts,
        messages, history, search, vectors and deferred changes, summaries above are made again, and the store is
        rewritten so that none of the bytes is left. Pages that were removed, moved or marked before are purged by the
        index they had. With `forks`, every context of this store with the same origin is purged too. The numbers of
        purged messages stay in use. Raises `NoSuchPage`; `InvalidOperation` for a root, a pinned page, an open window,
        an open exchange, and while a batch or a temporary block is open, here or in a fork.
        """
        check_bool(forks, "forks")
        from quire.system.purge import purge_pages  # imported late: it is rarely needed

        with self._engine.lock:
            return purge_pages(self._engine, self.actor, indices, forks=forks)

    def scrub(self) -> None:
        """Remove bytes that were deleted or overwritten in this context from the store. `purge` calls it.

        Raises `Busy` if other connections prevent the rewrite.
        """
        with self._engine.lock:
            state = self._engine.current()
            state.storage.scrub(state.id)
