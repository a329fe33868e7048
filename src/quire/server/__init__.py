"""The HTTP server: a JSON API over the contexts of one store, live changes, and the inspector's page.

Thin over `quire.Library`: no rule lives here. It needs `pip install 'quire[server]'`, which is loaded when it is used.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from quire.errors import InvalidOperation
from quire.storage.base import Storage

if TYPE_CHECKING:
    from typing import Unpack

    from quire.server.running import Running
    from quire.windows.app import App

__all__ = ["serve", "start"]

Where = str | os.PathLike[str] | Storage


class Settings(TypedDict, total=False):
    """What can be said of a server.

    `host` and `port` are where it listens (port 0: any that is free), `hosts` further names it may be asked by.
    `token` is what every request has to bring; without it one is read from `token_file`, or made and kept there.
    `budget` is that of views that ask for none, `apps` are the windows' apps it knows, `create` whether a store that is
    not there is made. `ready` is told when it listens. The others are limits: see `quire.server.options`.
    """

    host: str
    port: int
    token: str | None
    token_file: str | os.PathLike[str] | None
    budget: int | None
    hosts: Sequence[str]
    apps: "Sequence[type[App]] | None"
    create: bool
    ready: "Callable[[Running], None] | None"
    contexts: int
    threads: int
    listeners: int
    max_body: int
    patience: float
    timeout: float
    poll: float
    heartbeat: float
    grace: int


def serve(where: Where, **settings: "Unpack[Settings]") -> None:
    """Serve the contexts of a store until SIGINT or SIGTERM.

    Where it listens is printed, with the token if that was made just now, unless `ready` does something else.
    """
    _running().run(where, **settings)


def start(where: Where, **settings: "Unpack[Settings]") -> "Running":
    """Serve the contexts of a store in a thread of its own; what is returned tells the address and stops it."""
    running: Running = _running().start(where, **settings)
    return running


def _running() -> Any:
    try:
        from quire.server import running
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "quire":
            raise
        raise InvalidOperation(f"The server needs {error.name}: pip install 'quire[server]'.") from None
    return running
