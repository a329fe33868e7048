"""The HTTP server: a JSON API over the contexts of one store, live changes, and the inspector.

A thin layer over `quire.Library`; it adds no rules. It needs the extra `server`, which is imported on use.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from quire.errors import NotInstalled
from quire.storage.urls import StoreLocation

if TYPE_CHECKING:
    from typing import Unpack

    from quire.server.http_server import RunningServer
    from quire.windows.app import App

__all__ = ["serve", "start"]


class Settings(TypedDict, total=False):
    """The settings of a server.

    `host` and `port` are the address to listen on (port 0: any free port), `hosts` further accepted Host names.
    `token` is required from every request; by default it is read from `token_file`, or generated and written there.
    `budget` is the budget of contexts that the server creates, `apps` are the apps of windows. `create` is False to
    refuse a store that does not exist. `redact` is used for all contexts, as in `quire.open`.
    `ready` is called when the server listens. The others are limits: see docs/server.md.
    """

    host: str
    port: int
    token: str | None
    token_file: str | os.PathLike[str] | None
    budget: int | None
    hosts: Sequence[str]
    apps: "Sequence[type[App]] | None"
    create: bool
    redact: "Callable[[str], str] | None"
    ready: "Callable[[RunningServer], None] | None"
    contexts: int
    threads: int
    waiting: int
    listeners: int
    max_body: int
    header_timeout: float
    patience: float
    timeout: float
    poll: float
    heartbeat: float
    grace: int


def serve(where: StoreLocation, **settings: "Unpack[Settings]") -> None:
    """Serve the contexts of a store until SIGINT or SIGTERM.

    Prints the address, with the token if it is new, unless `ready` is given.
    """
    _http_server().run(where, **settings)


def start(where: StoreLocation, **settings: "Unpack[Settings]") -> "RunningServer":
    """Serve the contexts of a store in a new thread. The returned object has the address and stops the server."""
    running: RunningServer = _http_server().start(where, **settings)
    return running


def _http_server() -> Any:
    try:
        from quire.server import http_server
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "quire":
            raise
        raise NotInstalled(f"The server needs {package}", "server", name=package) from None
    return http_server
