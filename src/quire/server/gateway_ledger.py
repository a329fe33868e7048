"""The figures of gateway sessions, stored so that the inspector and the command line see them from other processes.

They are in a context of their own: one note for each session, with its figures as JSON. The description of a note is
the mode that a person chose for the session. The gateway writes figures, and the inspector writes modes.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from quire.context import Context
from quire.errors import Conflict, InvalidValue, short_repr
from quire.library import Library
from quire.model.pages import PageIndex
from quire.server.gateway_prices import find_price

Mode = Literal["observe", "fold"]
MODES: tuple[Mode, ...] = ("observe", "fold")
LEDGER = "gateway"
"""The name of the context."""
SESSIONS = "gateway/"
"""The names of the contexts with the conversations begin with this."""
_FOLDER = "mem-0"
_TRIES = 5


class GatewaySession(Struct, frozen=True, kw_only=True):
    """What gateways did for one session. `name` is its context, `chosen` the mode that a person chose for it.

    `bypasses` are requests that the mode `fold` had to send unchanged, `saved_tokens` is the sum of what folds left
    out, `updated` the time of the last request in seconds. `price` is that of a million input tokens of `model`, the
    model of the last request, in US dollars; None if it is not known.
    """

    name: str
    mode: Mode = "observe"
    chosen: Mode | None = None
    model: str = ""
    requests: int = 0
    retries: int = 0
    errors: int = 0
    bypasses: int = 0
    folds: int = 0
    folded_requests: int = 0
    saved_tokens: int = 0
    last_status: int = 0
    last_tokens: int = 0
    updated: float = 0.0
    price: float | None = None

    @property
    def saved_money(self) -> float | None:
        """The price of the saved tokens; None if the price is not known."""
        return None if self.price is None else self.saved_tokens * self.price / 1e6


class Ledger:
    """The notes of one store. Without `create`, a store that no gateway used has none, and nothing is written."""

    def __init__(self, library: Library, *, create: bool = False) -> None:
        self._library = library
        self._create = create
        self._context: Context | None = None
        self._pages: dict[str, PageIndex] = {}

    def sessions(self, names: Container[str] | None = None) -> list[GatewaySession]:
        """Return all sessions, or those with these names, the newest first."""
        return sorted(self._read(names), key=lambda session: -session.updated)

    def _read(self, names: Container[str] | None) -> Iterator[GatewaySession]:
        chosen, context = self.chosen_modes(), self._context
        for name, page in self._pages.items() if context is not None else ():
            if context is not None and (names is None or name in names):
                stored = msgspec.json.decode(context.pages.detail(page), type=GatewaySession)
                price = find_price(stored.model)
                yield msgspec.structs.replace(stored, name=name, chosen=chosen[name], price=price)

    def chosen_modes(self) -> dict[str, Mode | None]:
        """Return the mode that a person chose for each session; None if it is that of the gateway."""
        context = self._open()
        if context is None:
            return {}
        context.refresh()
        pages = context.pages.children(_FOLDER)
        self._pages = {page.name: page.index for page in pages}
        return {page.name: next((mode for mode in MODES if mode == page.description), None) for page in pages}

    def write(self, sessions: Mapping[str, GatewaySession]) -> None:
        """Store the figures of sessions."""
        context = self._open()
        if context is None:
            return
        for name, session in sessions.items():
            text = msgspec.json.encode(session).decode()
            self._retry(context, name, lambda text=text, name=name: self._put(context, name, text))  # type: ignore[misc]

    def choose_mode(self, name: str, mode: Mode | None) -> None:
        """Store the mode of a session; None is the mode of the gateway. Raise `InvalidValue` for an unknown one."""
        known, context = self.chosen_modes(), self._open()
        if context is None or name not in known:
            raise InvalidValue(f"is {short_repr(name)}; no gateway has recorded such a session.", argument="name")
        page = self._pages[name]
        self._retry(context, name, lambda: context.pages.update_page(page, description=mode or ""))

    def _put(self, context: Context, name: str, text: str) -> None:
        if name in self._pages:
            context.pages.set_detail(self._pages[name], text)
        else:
            self._pages[name] = context.pages.create_detail_page(name, "", text, _FOLDER)

    def _retry(self, context: Context, name: str, write: Callable[[], object]) -> None:
        for _ in range(_TRIES):
            try:
                write()
                return
            except Conflict:
                self.chosen_modes()
        raise InvalidValue(f"{short_repr(name)} could not be written: other writers were faster.")

    def _open(self) -> Context | None:
        if self._context is None and (self._create or self._library.exists(LEDGER)):
            self._context = self._library.open(LEDGER)
        return self._context

    def close(self) -> None:
        """Close the context; the library stays open."""
        if self._context is not None:
            self._context.close()
            self._context = None
