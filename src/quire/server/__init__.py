"""The HTTP server: a JSON API over the contexts of one store, live changes, and the inspector's page.

Thin over `quire.Library`: no rule lives here. It needs `pip install 'quire[server]'`, which is loaded when it is used.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidOperation
from quire.storage.base import Storage

if TYPE_CHECKING:
    from quire.server.running import Running
    from quire.windows.app import App

__all__ = ["serve", "start"]

Where = str | os.PathLike[str] | Storage


def serve(where: Where, **options: Any) -> None:
    """Serve the contexts of a store until SIGINT or SIGTERM; the options are those of `start`."""
    _running().run(where, **options)


def start(
    where: Where,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    budget: int | None = None,
    hosts: Sequence[str] = (),
    apps: "Sequence[type[App]] | None" = None,
    create: bool = True,
    ready: "Callable[[Running], None] | None" = None,
    **more: Any,
) -> "Running":
    """Serve the contexts of a store in a thread of its own; what is returned tells the address and stops it."""
    running: Running = _running().start(
        where,
        host=host,
        port=port,
        token=token,
        token_file=token_file,
        budget=budget,
        hosts=hosts,
        apps=apps,
        create=create,
        ready=ready,
        **more,
    )
    return running


def _running() -> Any:
    try:
        from quire.server import running
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "quire":
            raise
        raise InvalidOperation(f"The server needs {error.name}: pip install 'quire[server]'.") from None
    return running
