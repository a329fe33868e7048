"""A context that is not there: what was perhaps meant, and what is there, at the cost of a few names."""

from itertools import islice
from typing import Final

from quire.errors import NoSuchContext, shown
from quire.storage.base import Storage

_MOST_NAMES: Final = 12
_MOST_COMPARED: Final = 1_000
"""Names that a misspelt one is compared with; more would take too long for a word of help."""


def no_such_context(storage: Storage, name: str, where: str = "this store") -> NoSuchContext:
    """The error for a name that names no context; it tells names that are near, and the first ones there are."""
    from difflib import get_close_matches

    names = list(islice(storage.contexts(), _MOST_COMPARED))
    is_all = len(names) < _MOST_COMPARED
    beside = () if is_all else islice(storage.contexts(name[: max(len(name) // 2, len(name) - 3)]), _MOST_COMPARED)
    near = get_close_matches(name, dict.fromkeys((*names, *beside)), n=3)
    meant = f"Did you mean {' or '.join(map(shown, near))}? " if near else ""
    listed = ", ".join(map(shown, names[:_MOST_NAMES])) or "none"
    more = f" and {f'{len(names) - _MOST_NAMES:,} ' if is_all else ''}more" if len(names) > _MOST_NAMES else ""
    return NoSuchContext(f"No context {shown(name)} in {where}. {meant}Contexts there: {listed}{more}.")
