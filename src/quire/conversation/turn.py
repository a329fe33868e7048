"""Turns: one worker at a time works on a context. A failed turn is taken back; a repeated turn adds nothing twice.

A turn has a lease (`quire.core.lease`). Its commits carry its number. A worker that takes over the lease of a dead one
first commits to the context with its own number, so a late commit of the dead worker meets a conflict.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from quire.conversation.arrivals import find_message
from quire.core.codec import decode_head
from quire.core.engine import Engine
from quire.core.entries import read_entries
from quire.core.lease import Lease, acquire, renewer
from quire.core.plan import Plan
from quire.core.records import LAST_TURN
from quire.core.state import State
from quire.errors import (
    Conflict,
    Hint,
    InvalidOperation,
    InvalidValue,
    LeaseLost,
    NoSuchContext,
    QuireError,
    short_repr,
)
from quire.model.messages import Message
from quire.model.text import check_one_line
from quire.storage.contract import Loaded
from quire.storage.overlay import OverlayStorage
from quire.system.rules import check_bool
from quire.system.undo import Earlier, Protection, take_back

TurnState = Literal["new", "unfinished", "finished"]
"""The key is new, or an earlier turn with this key did not finish, or it finished."""

MAX_ID = 400

scope: ContextVar[object] = ContextVar("quire_turn_scope")
"""The task in which a turn runs. Without one, a turn belongs to its thread."""


class Turn:
    """The turn of one handle: its lease, its key, and the number of messages that it added."""

    def __init__(self, engine: Engine, lease: Lease, key: str) -> None:
        self._engine = engine
        self._lease = lease
        self._scope = current_scope()
        self._lost = False
        self.key = key
        self.added = 0
        self.state: TurnState = "new"

    def number_in(self, state: State) -> int:
        """Return the number of the turn; 0 if the commit is not part of this turn. Raises `LeaseLost`."""
        if not self.is_current:
            return 0
        self._lost = self._lost or self._lease.is_lost or state.head.turn > self._lease.number
        if self._lost:
            raise lease_lost(state.context)
        return self._lease.number

    def check_lease(self, found: Loaded | None) -> None:
        """Raise `LeaseLost` if a commit of this turn failed because another worker began a turn."""
        if self.is_current and found is not None and _turn_in(found) > self._lease.number:
            self._lost = True
            raise lease_lost(self._engine.state.context)

    @contextmanager
    def without_key(self) -> Iterator[None]:
        """Run a block of the turn without its key: its messages get no ids, because they do not stay."""
        key, added = self.key, self.added
        if self.is_current:
            self.key = ""
        try:
            yield
        finally:
            self.key, self.added = key, added

    @property
    def is_current(self) -> bool:
        """True in the task or thread that began the turn."""
        return self._scope == current_scope()

    def next_id(self, place: int = 0) -> str:
        """Return the id of the next message, or of one after it, in a turn with a key."""
        return f"{self.key}#{self.added + place + 1}"

    def skip_reply(self) -> Message | None:
        """Skip the messages that an earlier turn with this key added after the user's message; return the last one."""
        last = None
        with self._engine.lock:
            state = self._engine.current()
            while self.key and (number := find_message(state, self.next_id())) is not None:
                message = state.message(number).message
                if message.role == "user":
                    break
                last, self.added = message, self.added + 1
        return last


def _turn_in(found: Loaded) -> int:
    """Return the highest number of a turn that committed."""
    return decode_head(found.seq, found.head).turn


def current_scope() -> object:
    """Return the owner of a turn that begins now: the task, or else the thread."""
    return scope.get(None) or threading.get_ident()


def lease_lost(context: str) -> LeaseLost:
    """Return the error of a worker that lost its lease."""
    return LeaseLost(
        f"Another worker took over the turn on context {context!r}: this one did not renew its lease in time.",
        Hint("turn", purpose="to begin a new one"),
    )


@contextmanager
def run_turn(engine: Engine, actor: str, key: object, wait: object, keep: object) -> Iterator[Turn]:
    """Run a block as a turn. A turn in a turn of the same task or thread joins it."""
    keep = check_bool(keep, "keep")
    label = "" if key is None else check_id(key, "key")
    seconds = check_wait(wait)
    outer = engine.turn
    if isinstance(outer, Turn) and outer.is_current:
        yield outer
        return
    storage, context = engine.state.storage, engine.state.context
    if isinstance(storage, OverlayStorage):
        raise InvalidOperation("A turn cannot begin inside a temporary block: its changes are not stored.")

    def newest() -> tuple[int, int]:
        found = storage.load(context)
        return (found.seq, _turn_in(found)) if found else (0, 0)

    lease = acquire(storage, context, key=label, keep=keep, wait=seconds, newest=newest)
    turn = Turn(engine, lease, label)
    renewer.add(lease)
    try:
        with engine.lock:
            engine.refresh()
            engine.turn = turn
        if lease.takes_over:  # from a dead worker: its late commits conflict with this one
            _revert_turns(engine, actor, [(owed.number, owed.before) for owed in lease.owed], fences=True)
            lease.settle()
        turn.state, known = _state_of(engine, lease, label)
        yield turn
    except BaseException as error:
        _end_failed(engine, actor, turn, lease, error, keep=keep)
        raise
    else:
        try:
            lease.release(key=label, finished=True, added=max(turn.added, known))
        except Conflict:
            raise engine.state.deletion_error() or lease_lost(context) from None
    finally:
        renewer.remove(lease)
        with engine.lock:
            if engine.turn is turn:  # another thread may have begun a turn with this handle after the release
                engine.turn = None


def _end_failed(engine: Engine, actor: str, turn: Turn, lease: Lease, error: BaseException, *, keep: bool) -> None:
    """End a turn that raised: take its entries back, unless they are kept, and release the lease."""
    try:
        if not keep:
            _revert_turns(engine, actor, [(lease.number, lease.before)], fences=False)
        finished = False if keep and turn.key else None
        lease.release(key=turn.key if keep else "", finished=finished, added=turn.added)
    except NoSuchContext:
        return  # the entries are gone with the context
    except LeaseLost:
        error.add_note("Another worker took over this turn; it takes the entries back.")
    except QuireError as second:
        error.add_note(f"The turn could not be ended: {second} The next turn takes it back when the lease expires.")


def _revert_turns(engine: Engine, actor: str, turns: list[tuple[int, int]], *, fences: bool) -> None:
    """Take back turns. If work of other writers depends on their entries, take back their messages only."""
    try:
        engine.retry(lambda: engine.run(actor, "turn", _take_back, turns, fences, False))
    except InvalidOperation:
        engine.retry(lambda: engine.run(actor, "turn", _take_back, turns, fences, True))


def _take_back(plan: Plan, turns: list[tuple[int, int]], fences: bool, messages_only: bool) -> None:
    """Plan to take back the entries of turns. Raises `InvalidOperation` if that is not possible as a whole.

    With `messages_only`, only the messages that they added leave. With `fences`, the plan also writes a note, so that
    it is always committed: late commits of dead workers then conflict with it.
    """
    numbers = {number for number, _ in turns}
    first = min((before for _, before in turns), default=plan.state.version)
    earlier = Earlier()
    for seq, entry in read_entries(plan.state, first + 1):
        if entry.operation == "turn":  # it took back what was before it; if the user undid it, that stays
            earlier = Earlier()
        elif entry.turn in numbers:
            if seq <= plan.horizon and not messages_only:
                raise InvalidOperation(f"Entry {seq} of the turn is before a cleanup or a purge.")
            earlier.add(entry.touched)
        elif not messages_only and not earlier.records.keys().isdisjoint((t.family, t.key) for t in entry.touched):
            raise InvalidOperation(f"Entry {seq} of another writer changed what the turn had changed.")
    if messages_only:
        earlier = Earlier({key: None for key, old in earlier.pages.items() if old is None})
    take_back(plan, earlier, Protection(pages=messages_only, pins=False))
    if fences:
        plan.put_note(LAST_TURN)


def _state_of(engine: Engine, lease: Lease, key: str) -> tuple[TurnState, int]:
    """Return the state of a key, and how many messages its turn added.

    An earlier turn counts only if its first message is still in the conversation, or if it added none.
    """
    if not key:
        return "new", 0
    finished, added = lease.state_of(key) or (False, 0)  # a fork has the ids of a turn, but not its state
    counts = engine.read(lambda state: find_message(state, f"{key}#1") is not None)
    if finished and (counts or not added):
        return "finished", added
    return ("unfinished", added) if counts else ("new", 0)


def check_id(value: object, argument: str = "id") -> str:
    """Return an id of a message or the key of a turn. Raises `InvalidValue`."""
    line = check_one_line(value, argument, MAX_ID, empty=False)
    if line != value:  # without its line breaks it could be another id
        raise InvalidValue(f"{short_repr(value)} contains a line break.", argument=argument)
    return line


def check_wait(wait: object) -> float:
    """Return the seconds that a turn waits for others. Raises `InvalidValue`."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise InvalidValue(f"is {short_repr(wait)}; seconds from 0 are needed.", argument="wait")
    return float(wait)
