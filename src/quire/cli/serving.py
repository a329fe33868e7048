"""Serving a store with its inspector until Ctrl-C, for the commands that do."""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from quire.cli.out import Out

if TYPE_CHECKING:
    from quire.server.http_server import RunningServer


def can_serve() -> bool:
    """Whether what the server needs is installed (`quire[server]`)."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


def serve_here(where: str, out: Out, *, context: str | None = None, browse: bool = False, **options: Any) -> None:
    """Serve a store, tell where, perhaps open a browser there, and come back after Ctrl-C.

    With a `context` the inspector begins there. The options are those of `quire.server.start`.
    """
    from quire.server import serve

    def ready(running: "RunningServer") -> None:
        begin = f"&context={quote(context, safe='')}" if context is not None else ""
        link = f"{running.url}{begin}" if running.token_is_new else running.address
        if out.json:
            told = {"token": running.token} if running.token_is_new else {}
            out.value({"url": link, "address": running.address, **told})
        else:
            out.line(f"the inspector is at {out.paint.cyan(link)}")
            if not running.token_is_new:
                out.line(out.paint.dim(_token_place(options)))
            out.line(out.paint.dim("Ctrl-C ends it"))
        sys.stdout.flush()
        if browse and _has_browser():
            import webbrowser

            webbrowser.open(running.url + begin)

    serve(where, ready=ready, **options)


def _token_place(options: dict[str, Any]) -> str:
    """Where somebody finds a token that is not printed."""
    if options.get("token") is not None:
        return "it asks for the token: the value of QUIRE_TOKEN"
    return f"it asks for the token: it is in {options['token_file']}"


def _has_browser() -> bool:
    """Whether a browser would open a window of its own, and not in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
