"""The contexts that are open, the least recently used ones put back. Nothing is kept here that the store does not have.

Every use takes over first what other processes wrote, so that any number of servers can work on one store.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import is_
from threading import Lock, RLock
from typing import Any, NamedTuple

from msgspec import Raw

from quire.context import Context
from quire.errors import Busy, NoSuchContext, short_repr
from quire.library import Library
from quire.model.pages import PageIndex
from quire.server.calls import Calls
from quire.server.undone import Undone
from quire.storage.base import check_context_name
from quire.view.view import View
from quire.windows.app import App

_VIEWS = 8
_WRITTEN = 3
_FOLLOWED = 100
"""Entries that are looked at for what they touched; after more of them names are looked up anew."""
_PATIENCE = 20.0


class Opened:
    """A context that is open here, and what was last shown of it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lock = RLock()
        self.undone = Undone()
        self.calls = Calls()
        self._views: OrderedDict[int, View] = OrderedDict()
        self._written: OrderedDict[tuple[int, str], Written] = OrderedDict()
        self._names: dict[PageIndex, str] = {}
        self._named_at = 0

    def follow(self, view: View) -> View | None:
        """The view of the same budget that was given before this one, if there was any."""
        before = self._views.pop(view.budget, None)
        self._views[view.budget] = view
        while len(self._views) > _VIEWS:
            self._views.popitem(last=False)
        return before

    def names(self, view: View) -> Mapping[PageIndex, str]:
        """The names of the pages that a view shows: looked up once, and again where an entry touched them."""
        seq = self.context.seq
        if not self._named_at <= seq <= self._named_at + _FOLLOWED:
            self._names = {}
        elif seq > self._named_at:
            for entry in self.context.history(self._named_at):
                for index in entry.pages:
                    self._names.pop(index, None)
        self._named_at = seq
        missing = {shown.index for part in view.parts for shown in part.pages} - self._names.keys()
        if missing:
            self._names |= dict.fromkeys(missing, "") | self.context.pages.names(missing)
        return self._names

    def written(self, view: View, form: str, write: Callable[[], "Written"]) -> "Written":
        """A view as it is sent; written once, as long as the context and the pieces of the view stay the same."""
        key = (view.budget, form)
        found = self._written.pop(key, None)
        if found is None or not found.is_of(view):
            found = write()
        self._written[key] = found
        while len(self._written) > _WRITTEN:
            self._written.popitem(last=False)
        return found


class Written(NamedTuple):
    """What is sent of a view, in JSON, and where its parts begin in its messages."""

    view: View
    places: list[int]
    messages: Raw
    system: Any
    items: Raw

    def is_of(self, view: View) -> bool:
        """Whether another view has the same pieces, at the same entry."""
        mine, theirs = self.view.parts, view.parts
        return self.view.seq == view.seq and len(mine) == len(theirs) and all(map(is_, mine, theirs))


class Shelf:
    """Open contexts by name, at most so many."""

    def __init__(self, library: Library, *, budget: int, apps: Sequence[type[App]], most: int = 32) -> None:
        self.library = library
        self.budget = budget
        self._apps = apps
        self._most = most
        self._lock = Lock()
        self._open: OrderedDict[str, Opened] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def use(self, name: str) -> Iterator[Opened]:
        """A context as it is now, for this thread alone. Raises `NoSuchContext`, or `Busy` if it is long in use."""
        opened = self._opened(check_context_name(name))
        if not opened.lock.acquire(timeout=_PATIENCE):
            raise Busy(f"Context {name!r} has been in use for {_PATIENCE:.0f} seconds: retry.")
        try:
            try:
                opened.context.refresh()
            except NoSuchContext:  # it was deleted since
                self.forget(name)
                raise _unknown(name) from None
            yield opened
        finally:
            opened.lock.release()

    def forget(self, name: str) -> None:
        """Put a context back."""
        with self._lock:
            self._open.pop(name, None)

    def close(self) -> None:
        """Put all of them back."""
        with self._lock:
            opened = list(self._open.values())
            self._open.clear()
        for one in opened:
            one.context.close()

    def _opened(self, name: str) -> Opened:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                self._open.move_to_end(name)
                return found
        fresh = Opened(self._fresh(name))
        with self._lock:
            opened = self._open.setdefault(name, fresh)
            self._open.move_to_end(name)
            leaving = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - self._most)]
        for one in leaving:
            if one.lock.acquire(blocking=False):  # else its user goes on with it
                one.context.close()
                one.lock.release()
        return opened

    def _fresh(self, name: str) -> Context:
        if not self.library.exists(name):
            raise _unknown(name)
        context = self.library.open(name, budget=self.budget, create=False)
        for app in self._apps:
            context.windows.register(app)
        return context


def _unknown(name: str) -> NoSuchContext:
    return NoSuchContext(f"No context {short_repr(name)} here; GET /api/contexts lists what is there.")
