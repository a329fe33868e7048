"""Engine: plans, commits and applies the changes of one context. It is the only module that writes to the storage.

Plan → commit → apply: a plan collects changes, the storage commits all of them or none, and the state in memory
changes last. If the storage fails, memory still matches the disk.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import islice
from os import urandom
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from quire.core.codec import decode_entry
from quire.core.commit import Changes
from quire.core.exchanges import clear_stale_chapters
from quire.core.plan import Plan
from quire.core.records import BATCHES, CHECKPOINTS, DEFAULT_BUDGET, MESSAGES, EntryRecord, Touched
from quire.core.state import State
from quire.errors import (
    Busy,
    Conflict,
    Hint,
    InvalidOperation,
    InvalidValue,
    NoSuchPage,
    OutcomeUnknown,
    QuireError,
    StorageClosed,
    StorageFailure,
    short_repr,
)
from quire.model.tokens import TokenCounter, count_tokens
from quire.storage.base import NothingWritten
from quire.storage.contract import CACHE, NOTE, TEXT, Commit, Family, Fork, Id, Loaded, Storage
from quire.storage.overlay import OverlayStorage

if TYPE_CHECKING:  # imported when it is used
    from quire.core.redaction import Redaction

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
_CHUNK = 256
_NOTHING = nullcontext()
_MAX_TRIES = 20
"""The number of retries of a call. Each conflict means that another writer succeeded."""
Clock = Callable[[], int]
"""Returns the time in milliseconds since 1970. The seq defines the order: a jump only changes the times shown."""


def system_clock() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class ActiveTurn(Protocol):
    """The turn of a handle, as its commits see it. `state` says how far an earlier turn with the same key came."""

    state: Literal["new", "unfinished", "finished"]

    def number_in(self, state: State) -> int:
        """Return the number of the turn; 0 if the commit is not part of this turn. Raises `LeaseLost`."""

    def check_lease(self, found: Loaded | None) -> None:
        """Raise `LeaseLost` if a commit of this turn failed because another worker began a turn."""

    def without_key(self) -> AbstractContextManager[None]:
        """Return a `with` block in which the messages of this turn get no ids."""


class Engine:
    """One open context: its state in memory, its lock, and its commits.

    `ContextSystem`, `Conversation` and the other APIs of a context share one engine, so they share one lock and one
    cache.
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
        redaction: "Redaction | None" = None,
    ) -> None:
        self.lock = RLock()
        self.redaction = redaction
        self.clock = clock
        self.counter = counter
        self.count = partial(count_tokens, counter)
        """Returns the number of tokens of a text."""
        self.state = State(storage, context, max_pages=max_pages, max_bytes=max_bytes)
        self._handle = urandom(6)
        self._attempts = 0
        self._stale = False
        self.epoch = 0
        """Bumped when the context returns to an earlier state; invalidates caches keyed by seq."""
        self.embedder = embedder
        self.transactions: list[Transaction] = []
        """The open transactions, outermost first."""
        self._new_budget = 0  # set by this handle and not committed yet
        self.turn: ActiveTurn | None = None
        """The turn that this handle is in."""

    @property
    def budget(self) -> int:
        """The most tokens of a view. A new value is committed with the next write of this handle."""
        return self._new_budget or self.state.head.budget or DEFAULT_BUDGET

    @budget.setter
    def budget(self, budget: int) -> None:
        self._new_budget = 0 if budget == self.state.head.budget else budget

    @property
    def next_budget(self) -> int:
        """The budget that the next commit stores."""
        return self._new_budget or self.state.head.budget

    def begin(self, actor: str) -> Plan:
        """Return an empty plan over the current state. Hold the lock until it is committed or dropped."""
        plan = Plan(self.current(), actor=actor, now=self.now(), count=self.count)
        if self.redaction is not None:
            plan.redaction, plan.actor = self.redaction, self.redaction.text(actor)
        return plan

    def now(self) -> int:
        """Return the time of the clock. Raises `InvalidValue` if it returns anything else."""
        now = self.clock()
        if type(now) is not int:
            raise InvalidValue(f"The clock returned {short_repr(now)}; whole milliseconds since 1970 are needed.")
        return now

    def run(
        self, actor: str, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `planner` with an empty plan, commit the plan as one journal entry, and return the planner's result.

        Several steps in one planner are one all-or-nothing commit. If another writer has changed the context, records
        are read that the state does not know; an error of the planner is then a `Conflict`.
        """
        with self.lock, self.clean_errors() if self.redaction is not None else _NOTHING:
            plan = self.begin(actor)
            try:
                result = planner(plan, *args, **kwargs)
            except (InvalidOperation, NoSuchPage) as error:
                if outdated := plan.state.outdated_error():
                    raise outdated from error
                raise
            self.commit(plan, operation)
            return result

    def retry(self, call: Callable[[], T]) -> T:
        """Make a call that commits. Refresh and retry if another writer was first."""
        for _ in range(_MAX_TRIES):
            try:
                return call()
            except Conflict:
                self.refresh()
        return call()

    def read(self, look: Callable[[State], T]) -> T:
        """Return `look(state)`, called under the lock."""
        with self.lock, self.clean_errors() if self.redaction is not None else _NOTHING:
            return look(self.current())

    def clean_errors(self, given: object = None) -> AbstractContextManager[None]:
        """Return a block that removes secrets from its errors. `given` is the value that the block reads."""
        return _NOTHING if self.redaction is None else self.redaction.errors(given)

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
        """Return the state. It is loaded again first if the outcome of the last commit is unknown."""
        if self._stale:
            self.refresh()
        return self.state

    def refresh(self) -> bool:
        """Load new commits of other writers; return True if there are any. Raises `NoSuchContext` after a deletion."""
        with self.lock:
            state = self.state
            before, identity = (state.id, state.version), state.head.identity
            if self._stale or not state.is_newest():
                state.load()
            if state.version < before[1] or identity not in (b"", state.head.identity):
                self.epoch += 1  # the context was deleted and created again
            self._stale = False
            return (state.id, state.version) != before

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
            redaction=self.redaction,
        )

    def reload(self) -> None:
        """Load the state again after records in its cache were erased."""
        with self.lock:
            self.state.load()
            self.epoch += 1

    def switch_storage(self, storage: Storage) -> None:
        """Continue with the same context in another storage, which must hold this version of it."""
        with self.lock:
            state = self.current()
            if isinstance(state.storage, OverlayStorage):
                raise InvalidOperation("Changes are held in memory inside a temporary block. Leave the block first.")
            found = storage.load(state.context)
            here, there = (
                next(each.entries(id_, state.version), None)
                for each, id_ in ((state.storage, state.id), (storage, found.id if found else 0))
            )
            if (found.seq if found else 0) != state.version or here != there:
                text = f"has version {found.seq}" if found else "does not exist"
                raise InvalidOperation(
                    f"Context {state.context!r} {text} in the target; here it has version {state.version}.",
                    Hint("set_storage", arguments="target, migrate=True", purpose="to copy it there"),
                )
            self.state = state.reopen(storage)

    def commit(self, plan: Plan, operation: str, *, undoes: int = 0) -> None:
        """Commit a plan as one journal entry and apply it to the state. A plan without changes writes nothing."""
        if not (
            plan.pages or plan.segments or plan.notes or plan.applies_deferred or plan.opened_pages or plan.layouts
        ):
            return
        if plan.pages and operation != "fold":
            clear_stale_chapters(plan)
        state = self.state
        changes = Changes(plan)
        turn = 0 if self.turn is None else self.turn.number_in(state)
        entry = self._entry(plan, operation, tuple(changes.touched), undoes=undoes, turn=turn)
        head = changes.head(
            state.head.identity or entry.commit,
            budget=self.next_budget,
            fold_budget=self.budget if operation == "fold" else state.head.fold_budget,
            turn=max(turn, state.head.turn),
        )
        commit = changes.commit(entry, head)
        id_ = self._write(operation, state.storage, state.context, commit, state.id if state.version else None)
        self._stale = True  # until `apply` returns: if it is interrupted, the next call loads the state again
        state.apply(plan, changes, head)
        if state.id != id_:
            state.adopt_storage(state.storage, id_)
        self._stale = False
        if not self.transactions:
            self._new_budget = 0

    def fork(self, plan: Plan, target: str, messages: int) -> None:
        """Create another context with the state of this one after the plan, and with the first `messages` messages.

        The journal of the fork starts with the entry of the fork. Nothing before that entry can be undone there. This
        context does not change.
        """
        state, old = self.state, self.state.head
        plan.notes = {key: note for key, note in plan.notes.items() if key != BATCHES and key < CHECKPOINTS}
        changes = Changes(plan)
        changes.leave_out(messages)
        entry = self._entry(plan, "fork", ())
        head = changes.head(entry.commit, budget=self.next_budget, fold_budget=old.fold_budget, turn=0)
        head = replace(
            head,
            origin=(*old.origin, old.identity),
            created=plan.now,
            next_message=messages,
            first=plan.seq,
            horizon=plan.seq,
        )
        limits: dict[Family, int] = {TEXT: MESSAGES + messages, NOTE: CHECKPOINTS, CACHE: 0}
        fork = Fork(state.id, state.version, limits)
        self._write("fork", state.storage, target, changes.commit(entry, head), None, fork)

    def _entry(
        self, plan: Plan, operation: str, touched: tuple[Touched, ...], *, undoes: int = 0, turn: int = 0
    ) -> EntryRecord:
        """Return a journal entry with an id that no other write has."""
        self._attempts += 1
        commit = self._handle + self._attempts.to_bytes(4)
        return EntryRecord(plan.now, plan.actor, operation, commit, touched, undoes, turn)

    def _write(
        self,
        operation: str,
        storage: Storage,
        context: str,
        commit: Commit,
        known: Id | None,
        copy_of: Fork | None = None,
    ) -> Id:
        """Write the commit of an operation to a context, or create the context with it. Return its id.

        If it fails and the outcome is unknown, read whether the entry was committed.
        """
        try:
            if known is None:
                return storage.create(context, commit, copy_of)
            storage.commit(known, commit)
            return known
        except Conflict:
            self._explain_conflict(context)
            raise
        except (Busy, StorageClosed, InvalidOperation, NothingWritten):  # refused before anything was sent
            raise
        except Exception as error:  # a backend may raise anything after it committed
            found = self._find_written(storage, context, commit, error)
            if found is not None:
                return found
            if isinstance(error, QuireError):
                raise
            raise StorageFailure(f"The storage failed ({error}); nothing was changed.") from error
        except BaseException:  # interrupted: the next call loads the state again
            self._stale = True
            raise

    def _explain_conflict(self, context: str) -> None:
        """Raise the reason of a conflict if it is known: the context was deleted, or the lease of the turn is lost."""
        deleted = found = None
        with suppress(Exception):  # the conflict is raised even if its reason cannot be read
            deleted = self.state.deletion_error()
            found = self.state.storage.load(self.state.context) if self.turn is not None and not deleted else None
        if deleted:
            raise deleted from None
        if self.turn is not None and context == self.state.context:
            self.turn.check_lease(found)

    def _find_written(self, storage: Storage, context: str, commit: Commit, error: Exception) -> Id | None:
        """Return the id of a context that has this commit, or None. Raises `OutcomeUnknown` if it cannot be read."""
        try:
            found = storage.load(context)  # makes the backend read again instead of using its cache
            last = None if found is None else next(storage.entries(found.id, commit.seq, commit.seq), None)
        except Exception:
            self._stale = True
            raise OutcomeUnknown(
                f"The storage failed ({error}). It is unknown whether entry {commit.seq} was committed; the next"
                " call reads it again."
            ) from error
        return found.id if found and last and last.entry == commit.entry else None


class Transaction:
    """Commits that are held in memory and visible only through this engine, until they are committed as one.

    The caller holds the lock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._outer = engine.current()
        self._overlay = OverlayStorage(self._outer.storage, self._outer.context)
        self.check_unchanged()
        engine.state = self._outer.reopen(self._overlay)
        engine.transactions.append(self)

    def check_unchanged(self) -> None:
        """Raise `Conflict` if another writer committed since this handle read the context."""
        if not self._outer.is_newest():
            raise self._outer.outdated_error() or Conflict(
                "The context was changed by another writer.", Hint("refresh", purpose="and retry")
            )

    @property
    def is_ended(self) -> bool:
        """True after it was committed or discarded, alone or with an outer transaction."""
        return self not in self._engine.transactions

    def commit_all(self) -> None:
        """Commit everything as one. Raises what a commit raises; the transaction is then still open."""
        engine, inner = self._engine, self._engine.current()
        if inner.storage is not self._overlay:
            raise InvalidOperation("A transaction that began later is still open: end that first.")
        commit = self._overlay.as_commit()
        id_ = self._outer.id
        if commit is not None:
            known, operation = id_ if self._outer.version else None, decode_entry(commit.entries[-1]).operation
            id_ = engine._write(operation, self._outer.storage, inner.context, commit, known)
        inner.adopt_storage(self._outer.storage, id_)
        engine.state = inner
        engine.transactions.remove(self)
        if commit is not None and not engine.transactions:
            engine._new_budget = 0

    def discard(self) -> None:
        """Drop all commits of this transaction and of the transactions inside it."""
        transactions = self._engine.transactions
        if self in transactions:
            del transactions[transactions.index(self) :]
            self._engine.state = self._outer
            self._engine.epoch += 1
