"""Points in the history of a context: checkpoints, and the entries that a user names."""

from quire.core.plan import Plan
from quire.core.records import CHECKPOINTS
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.text import MAX_NAME, check_one_line
from quire.storage.overlay import OverlayStorage
from quire.system.journal import Entry

_MAX_DIGITS = 19
"""A longer number is no entry; Python refuses to read one of thousands of digits."""


def checkpoint(plan: Plan, name: str) -> int:
    """Name the present state for `rollback`; return the seq of the new entry."""
    label = check_one_line(plan.redact(name), "name", MAX_NAME, empty=False)
    if label.isascii() and label.isdigit():
        raise InvalidValue(f"is {label!r}; a number is an entry. Give a name with a letter.", argument="name")
    if isinstance(plan.state.storage, OverlayStorage):
        raise InvalidOperation(f"Cannot set checkpoint {label!r} in a temporary block: its changes are not stored.")
    seq = checkpoints(plan.state).get(label)
    if seq is not None:
        raise InvalidOperation(f"Checkpoint {label!r} exists already, at entry {seq}; choose another name.")
    plan.put_note(CHECKPOINTS | plan.seq, name=label)
    return plan.seq


def checkpoints(state: State) -> dict[str, int]:
    """Return all checkpoints with their seqs, oldest first."""
    return {note.name: seq for seq, note in sorted(state.checkpoints().items()) if note.name}


def parse_point(text: str) -> str | int:
    """Return a point in history: the number of an entry if the text is a number, else the name of a checkpoint."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else text


def resolve_seq(state: State, to: "str | int | Entry") -> int:
    """Return the seq of a checkpoint's name, a seq or an entry. Raises `InvalidValue`."""
    if isinstance(to, str):
        known = checkpoints(state)
        if to not in known:
            names = ", ".join(map(repr, list(known)[-12:])) or "none yet"
            hints = () if known else (Hint("checkpoint", arguments="name", purpose="to set one"),)
            raise InvalidValue(f"No checkpoint {short_repr(to)}. Checkpoints: {names}.", *hints)
        return known[to]
    seq = to.seq if isinstance(to, Entry) else to
    first = max(state.head.horizon, 1)
    if isinstance(seq, bool) or not isinstance(seq, int) or not first <= seq <= state.version:
        raise InvalidValue(
            f"Cannot go back to {short_repr(to)}; give a checkpoint's name or a seq from {first} to {state.version}."
        )
    return seq
