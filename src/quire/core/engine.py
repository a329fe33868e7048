"""The one place that writes: turns a plan into a commit, and the commit into the new state.

Plan → commit → apply. The storage commits everything or nothing, and memory moves last: were the storage to fail,
memory must still say what the disk says.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from os import urandom
from threading import RLock
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from quire.core.deferred_changes import place_of, plan_deferred_changes
from quire.core.plan import Plan
from quire.core.records import (
    BATCHES,
    CHECKPOINTS,
    NOTE_CODE,
    PAGE_CODE,
    SEGMENT_CODE,
    DeferredChange,
    EntryRecord,
    Gone,
    HeadRecord,
    MessageRecord,
    NoteRecord,
    PageRecord,
    SegmentRecord,
    Touched,
    decode_entry,
    encode_body,
    encode_record,
    is_undone,
)
from quire.core.stale_chapters import clear_stale_chapters
from quire.core.state import Folder, State
from quire.errors import (
    Busy,
    Conflict,
    InvalidOperation,
    InvalidValue,
    OutcomeUnknown,
    QuireError,
    StorageClosed,
    StorageFailure,
    short_repr,
)
from quire.model.clock import Clock
from quire.model.tokens import TokenCounter
from quire.storage.base import (
    ANCHOR,
    BODY,
    CALL,
    JOURNAL,
    MESSAGE,
    NOTE,
    PAGE,
    PIN,
    SEGMENT,
    TALLY,
    VECTOR,
    Commit,
    Delete,
    Family,
    Patch,
    Put,
    Storage,
    Write,
)
from quire.storage.overlay import OverlayStorage

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
_CHUNK = 256


class Engine:
    """One handle on one context: its state, its lock, and the way from a plan to a commit.

    Several `ContextSystem` faces with different actors share one engine, and so one lock and one cache.
    """

    def __init__(
        self,
        storage: Storage,
        context: str,
        *,
        clock: Clock,
        counter: TokenCounter,
        max_pages: int,
        max_bytes: int,
        embedder: Callable[[list[str]], Any] | None = None,
    ) -> None:
        self.lock = RLock()
        self.clock = clock
        self.counter = counter
        self.state = State(storage, context, max_pages=max_pages, max_bytes=max_bytes)
        self._handle = urandom(6)
        self._attempts = 0
        self._stale = False
        self.epoch = 0
        """Bumped when the context goes back to an earlier state; invalidates caches keyed by seq."""
        self.embedder = embedder
        self.transactions: list[Transaction] = []
        """Work that is held back, outermost first."""

    def begin(self, actor: str) -> Plan:
        """An empty plan over the current state. Hold the lock until it is committed or dropped."""
        now = self.clock()
        if type(now) is not int:
            raise InvalidValue(f"The clock gave {short_repr(now)}; whole milliseconds since 1970 are needed.")
        return Plan(self.current(), actor=actor, now=now, counter=self.counter)

    def run(
        self, actor: str, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `planner` with an empty plan, commit the plan as one journal entry, and return the planner's result.

        Several steps in one planner are one all-or-nothing commit.
        """
        with self.lock:
            plan = self.begin(actor)
            result = planner(plan, *args, **kwargs)
            self.commit(plan, operation)
            return result

    def read(self, look: Callable[[State], T]) -> T:
        """Return `look(state)`, called under the lock."""
        with self.lock:
            return look(self.current())

    def stream(self, items: Iterator[Item], to_result: Callable[[State, Item], T]) -> Iterator[T]:
        """Yield `to_result(state, item)` for every item. The lock is held for one chunk at a time."""
        while True:
            with self.lock:
                state = self.current()
                chunk = [to_result(state, item) for item in islice(items, _CHUNK)]
            yield from chunk
            if len(chunk) < _CHUNK:
                return

    def current(self) -> State:
        """The state, read anew first if the outcome of the last commit is not known."""
        if self._stale:
            self.refresh()
        return self.state

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything. `NoSuchContext` if it was deleted."""
        with self.lock:
            head = self.state.storage.head(self.state.context)
            before = (self.state.version, self.state.head_value)
            identity = self.state.head.identity
            if self._stale or not self.state.is_at(head):
                self.state.load()
            if self.state.version < before[0] or identity not in (b"", self.state.head.identity):
                self.epoch += 1  # it was deleted and made again
            self._stale = False
            return (self.state.version, self.state.head_value) != before

    def open_context(self, context: str, storage: Storage | None = None) -> "Engine":
        """Open another context of the same storage (or of `storage`) with this engine's clock, counter and limits."""
        state = self.state
        return Engine(
            storage or state.storage,
            context,
            clock=self.clock,
            counter=self.counter,
            max_pages=state.max_pages,
            max_bytes=state.max_bytes,
            embedder=self.embedder,
        )

    def reload(self) -> None:
        """Drop everything that is in memory: some of it is no more."""
        with self.lock:
            self.state.load()
            self.epoch += 1

    def switch_storage(self, storage: Storage) -> None:
        """Go on with the same context in another storage, which must hold this very state of it."""
        with self.lock:
            state = self.current()
            if isinstance(state.storage, OverlayStorage):
                raise InvalidOperation("Work is held back here: leave temporary() first, then change the storage.")
            head = storage.head(state.context)
            if (head.version if head else 0) != state.version or not self._same_last_entry(storage):
                found = f"is at version {head.version}" if head else "is not there"
                raise InvalidOperation(
                    f"The target does not hold this context: {state.context!r} {found}, here it is at version"
                    f" {state.version}. Use set_storage(target, migrate=True)."
                )
            self.state = state.reopen(storage)

    def commit(self, plan: Plan, operation: str, *, undoes: int = 0) -> None:
        """Commit a plan as one journal entry and apply it; a plan without changes is no entry."""
        if not (plan.pages or plan.segments or plan.notes or plan.applies_deferred or plan.opened_pages):
            return
        if plan.pages and operation != "fold":
            clear_stale_chapters(plan)
        state = self.state
        changes = _Changes(plan)
        entry = self._entry(plan, operation, tuple(changes.touched), undoes)
        head = _head(plan, changes, state.head.identity or entry.commit)
        changes.writes.append(Put(JOURNAL, plan.seq, encode_record(plan.seq, entry)))
        head_value = encode_record(0, head)
        commit = Commit(state.version, plan.seq, head_value, changes.writes, state.head_value)
        self.write(state.storage, commit, entry)
        self._stale = True  # until memory has moved too: were that interrupted, the next call must look again
        state.apply(
            version=plan.seq,
            head=head,
            head_value=head_value,
            pages=plan.pages,
            segments=plan.segments,
            folders=changes.folders,
            pins=changes.pins,
            notes=plan.notes,
            anchors=changes.anchors,
            messages=changes.messages,
            destroyed=plan.destroyed_messages,
            moved=changes.moved,
        )
        self._stale = False

    def fork(self, plan: Plan, target: str, messages: int) -> None:
        """Make another context of this one as the plan would leave it, with the first so many messages.

        Its journal starts with this entry, and so does what can be undone there. Here nothing changes.
        """
        state = self.state
        changes = _Changes(plan)
        entry = self._entry(plan, "fork", (), 0)
        head = _head(plan, changes, entry.commit)
        family = state.head.family or state.head.identity
        head = replace(head, created=plan.now, next_message=messages, horizon=plan.seq, family=family)
        ended: list[Write] = [Delete(NOTE, BATCHES), Put(JOURNAL, plan.seq, encode_record(plan.seq, entry))]
        commit = Commit(state.version, plan.seq, encode_record(0, head), [*changes.writes, *ended], state.head_value)
        below: dict[Family, int] = {MESSAGE: messages, NOTE: CHECKPOINTS, VECTOR: 0}
        copy = partial(state.storage.fork, state.context, target, commit, below)
        self._once(state.storage, target, plan.seq, entry, copy)

    def begin_transaction(self) -> "Transaction":
        """Keep what is committed from now on in memory, until it is released as one commit or dropped."""
        with self.lock:
            return Transaction(self)

    def _entry(self, plan: Plan, operation: str, touched: tuple[Touched, ...], undoes: int) -> EntryRecord:
        self._attempts += 1
        return EntryRecord(
            time=plan.now,
            actor=plan.actor,
            operation=operation,
            commit=self._handle + self._attempts.to_bytes(4),
            touched=touched,
            undoes=undoes,
        )

    def write(self, storage: Storage, commit: Commit, entry: EntryRecord) -> None:
        """Commit exactly once; `entry` is the last one of the commit."""
        context = self.state.context
        self._once(storage, context, commit.version, entry, lambda: storage.commit(context, commit))

    def _once(
        self, storage: Storage, context: str, version: int, entry: EntryRecord, write: Callable[[], None]
    ) -> None:
        """Write; if the storage fails without an answer, ask it what happened."""
        try:
            write()
        except Conflict:
            deleted = None
            with suppress(Exception):  # who came second hears that, even if the reason cannot be looked for
                deleted = self.state.deletion_error()
            if deleted:
                raise deleted from None
            raise
        except (Busy, StorageClosed):
            raise
        except Exception as error:  # whatever a backend raises, the question is the same: did it land?
            try:
                storage.head(context)  # look again, past what the backend may remember
                found = storage.get(context, JOURNAL, version)
                landed = found is not None and decode_entry(found.key, found.value).commit == entry.commit
            except Exception:
                self._stale = True
                raise OutcomeUnknown(
                    f"The storage failed ({error}) and cannot be asked whether {entry.operation!r} was committed;"
                    " the next call will look again."
                ) from error
            if not landed:
                if isinstance(error, QuireError):
                    raise
                raise StorageFailure(f"The storage failed ({error}); nothing was changed.") from error
        except BaseException:  # interrupted: look again before the next call
            self._stale = True
            raise

    def _same_last_entry(self, storage: Storage) -> bool:
        state = self.state
        ours, theirs = (place.get(state.context, JOURNAL, state.version) for place in (state.storage, storage))
        return ours == theirs


class Transaction:
    """Work that is held back in memory over a state, seen only through this engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._outer = engine.current()
        self._overlay = OverlayStorage(self._outer.storage, self._outer.context)
        if not self._outer.is_at(self._overlay.head(self._outer.context)):
            raise self._outer.outdated_error() or Conflict("Another writer changed the context: refresh() and retry.")
        engine.state = self._outer.reopen(self._overlay)
        engine.transactions.append(self)

    @property
    def is_ended(self) -> bool:
        """Whether it was released or dropped, by itself or with what it stands in."""
        return self not in self._engine.transactions

    def commit_all(self) -> None:
        """Commit everything at once. Raises what a commit raises; then the work is still held."""
        engine, inner = self._engine, self._inner()
        commit = self._overlay.poured()
        if commit is not None:
            last = self._overlay.get(inner.context, JOURNAL, commit.version)
            if last is None:
                raise inner.damage_error(f"journal record {commit.version} is missing.")
            engine.write(self._outer.storage, commit, decode_entry(last.key, last.value))
        inner.adopt_storage(self._outer.storage)
        engine.state = inner
        engine.transactions.remove(self)

    def discard(self) -> None:
        """Forget everything that was done since, by work that began later too."""
        held = self._engine.transactions
        if self in held:
            del held[held.index(self) :]
            self._engine.state = self._outer
            self._engine.epoch += 1

    def _inner(self) -> State:
        state = self._engine.current()
        if state.storage is not self._overlay:
            raise InvalidOperation("Work that began later is still held back: end that first.")
        return state


def _head(plan: Plan, changes: "_Changes", identity: bytes) -> HeadRecord:
    old = plan.state.head
    return HeadRecord(
        old.format,
        old.created or plan.now,
        plan.now,
        old.next_body + len(plan.bodies),
        tuple(plan.counters),
        changes.tally_of,
        changes.tally,
        plan.actors,
        identity,
        plan.next_message,
        plan.horizon,
        changes.anchors_left,
        old.family,
    )


class _Changes:
    """A plan as writes: the records, what they were before, and what is derived from them (tallies, pins)."""

    def __init__(self, plan: Plan) -> None:
        self.writes: list[Write] = []
        self.touched: list[Touched] = []
        self.folders: dict[int, Folder] = {}
        self.pins: dict[int, bool] = {}
        self.anchors: dict[int, DeferredChange | None] = {}
        self.anchors_left = 0
        self.messages: dict[int, tuple[MessageRecord, int]] = {}
        self.moved = False
        self._plan = plan
        self._state = plan.state
        self.tally_of = plan.state.head.tally_of
        self.tally = plan.state.head.tally
        self._deltas: dict[int, int] = {}
        self._last: dict[int, bytes] = {}
        for number, segment in plan.segments.items():
            self._segment(number, segment)
        for key, page in plan.pages.items():
            self._page(key, page)
        for key, text in plan.bodies.items():
            self.writes.append(Put(BODY, key, encode_body(key, text)))
        for number, message in plan.messages.items():
            value = encode_record(number, message)
            self.writes.append(Put(MESSAGE, number, value))
            self.messages[number] = (message, len(value))
        for key, pages in plan.calls.items():
            self.writes.append(Put(CALL, key, encode_record(key, pages)))
        for key, note in plan.notes.items():
            self._note(key, note)
        for number in plan.destroyed_messages:
            self.writes.append(Delete(MESSAGE, number))
        self.writes += plan.erasures
        self._tallies()
        self._anchor()

    def _anchor(self) -> None:
        """Remember how the view shows what is deferred; what is changed at once is no longer."""
        known = self._state.deferred_changes()
        self.anchors = plan_deferred_changes(self._plan, known)
        gone = sum(anchor is None for anchor in self.anchors.values())
        self.anchors_left = len(known.keys() | self.anchors.keys()) - gone if known or self.anchors else 0
        for key, anchor in self.anchors.items():
            self.writes.append(Delete(ANCHOR, key) if anchor is None else Put(ANCHOR, key, encode_record(key, anchor)))

    def _note(self, key: int, note: NoteRecord) -> None:
        old = self._state.note(key)
        if is_undone(key):
            self.touched.append(Touched(NOTE_CODE, key, None if old is None else encode_record(key, old)))
        self.writes.append(Put(NOTE, key, encode_record(key, note)))

    def _segment(self, number: int, segment: SegmentRecord) -> None:
        old = self._state.segment(number)
        before = None if old is None else encode_record(number, old)
        self.touched.append(Touched(SEGMENT_CODE, number, before))
        self.writes.append(Put(SEGMENT, number, encode_record(number, segment)))

    def _page(self, key: int, page: PageRecord | Gone) -> None:
        old = self._plan.stored_page(key)
        if old is None:
            self._new_page(key, page)
            return
        group, order = place_of(page)
        place = place_of(old)
        if self._plan.omits_previous:
            self.touched.append(Touched(PAGE_CODE, key))
        else:
            before = encode_record(key, old if isinstance(old, Gone) else old.header)
            self.touched.append(Touched(PAGE_CODE, key, before, *place))
        value = encode_record(key, page if isinstance(page, Gone) else page.header)
        if place == (group, order):
            self.writes.append(Patch(PAGE, key, value))
        else:
            self.writes.append(Put(PAGE, key, value, group, order))
            self.moved = True
            self._tally(old, -1)
            self._tally(page, +1)
        self._pin(key, old, page)

    def _new_page(self, key: int, page: PageRecord | Gone) -> None:
        self.touched.append(Touched(PAGE_CODE, key))
        if isinstance(page, Gone):
            self.writes.append(Put(PAGE, key, encode_record(key, page)))
            return
        header = page.header
        self.writes.append(Put(PAGE, key, encode_record(key, header), page.group, page.rank))
        self._tally(page, +1)
        if header.pinned:
            self._pin(key, None, page)

    def _tally(self, page: PageRecord | Gone | None, by: int) -> None:
        if isinstance(page, PageRecord) and page.parent is not None:
            self._deltas[page.parent] = self._deltas.get(page.parent, 0) + (0 if page.is_cold else by)
            if by > 0:
                self._last[page.parent] = max(page.rank, self._last.get(page.parent, b""))

    def _tallies(self) -> None:
        for key, delta in self._deltas.items():
            known = self._state.folder(key)
            count = known.children + delta
            last = max(known.last or b"", self._last.get(key, b"")) or None
            self.folders[key] = Folder(count, last)
            if key == self.tally_of:
                self.tally = count
            elif delta and len(self._deltas) == 1:  # the folder at work from now on
                if self.tally_of >= 0:
                    self._write_tally(self.tally_of, self.tally)
                self.tally_of, self.tally = key, count
            elif delta:
                self._write_tally(key, count)

    def _write_tally(self, key: int, count: int) -> None:
        self.writes.append(Put(TALLY, key, encode_record(key, count)) if count else Delete(TALLY, key))

    def _pin(self, key: int, old: PageRecord | Gone | None, page: PageRecord | Gone) -> None:
        was = isinstance(old, PageRecord) and old.header.pinned
        now = isinstance(page, PageRecord) and page.header.pinned
        if was is not now:
            self.pins[key] = now
            self.writes.append(Put(PIN, key, b"") if now else Delete(PIN, key))
