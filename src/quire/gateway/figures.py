"""Stores the figures of a running gateway, and follows the modes that a person chose in the inspector.

A thread does both about once per second, so that no request waits for it.
"""

import logging
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import msgspec

from quire.errors import NoSuchContext, QuireError
from quire.gateway.sessions import Sessions
from quire.server.gateway_ledger import GatewaySession, Ledger, Mode

_ADDED = ("requests", "retries", "errors", "bypasses", "folds", "folded_requests", "saved_tokens")
"""Counters that continue from the values of an earlier gateway."""
_INTERVAL = 1.0
_log = logging.getLogger("quire.gateway")


class FigureKeeper:
    """Keeps the stored figures of the sessions of a gateway up to date."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._before: dict[str, GatewaySession] = {}
        self._written: dict[str, GatewaySession] = {}
        self._chosen: dict[str, Mode | None] = {}
        self._stopping = Event()
        self._ledger = Ledger(sessions.library, create=True)
        self._thread = Thread(target=self._run, name="quire-gateway-figures", daemon=True)

    def start(self) -> None:
        """Follow the modes that a person chose before, and start the thread."""
        try:
            self._follow_modes()
        except QuireError as error:
            _log.warning("The chosen modes of the sessions were not read: %s", error)
        self._thread.start()

    def stop(self) -> None:
        """Store the last figures, and end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.update()
        self._ledger.close()

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            self.update()

    def update(self) -> None:
        """Follow the chosen modes, and store the figures that changed. A failure is only logged."""
        infos = dict(self._sessions.infos)
        if not infos:
            return
        try:
            caches: tuple[dict[str, Any], ...] = (self._before, self._written)
            for cache in caches:
                for name in cache.keys() - infos.keys():  # if it comes back, it continues from the stored figures
                    del cache[name]
            self._follow_modes()
            new = infos.keys() - self._before.keys()
            stored = {session.name: session for session in self._ledger.sessions(new)} if new else {}
            changed = {}
            for name, info in infos.items():
                before = self._before.setdefault(name, stored.get(name) or GatewaySession(name=name))
                fields = msgspec.structs.asdict(info)
                sums = {field: fields[field] + getattr(before, field) for field in _ADDED}
                known = {field: fields[field] for field in fields if field in GatewaySession.__struct_fields__}
                now = GatewaySession(**{**known, **sums})
                if self._written.get(name) != now:
                    changed[name] = now
            self._ledger.write(changed)
            self._written.update(changed)
        except QuireError as error:
            _log.warning("The figures of the sessions were not stored: %s", error)

    def _follow_modes(self) -> None:
        """Set the mode of each session for which a person chose another one since the last look."""
        for name, chosen in self._ledger.chosen_modes().items():
            if chosen != self._chosen.get(name):
                with suppress(NoSuchContext):  # the conversation was deleted; it may come back
                    self._sessions.set_mode(name, chosen)
                    self._chosen[name] = chosen
