"""The command serve, and serving for other commands."""

import argparse
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import quire
from quire.cli.command import REDACT, STORE, argument, command, token_count
from quire.cli.terminal import Output, pick

if TYPE_CHECKING:
    from quire.server.http_server import RunningServer

_TOKEN = "QUIRE_TOKEN"


def can_serve() -> bool:
    """Return whether the packages of the server are installed (`quire[server]`)."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))


def serve_inspector(
    where: str, out: Output, *, context: str | None = None, browse: bool = False, **options: Any
) -> None:
    """Serve a store until Ctrl-C, print the link, and open it in a browser if `browse` is set.

    With `context` the inspector opens that context. The options are those of `quire.server.start`.
    """
    from quire import metrics
    from quire.server import serve

    def ready(running: "RunningServer") -> None:
        target = f"&context={quote(context, safe='')}" if context is not None else ""
        link = f"{running.url}{target}" if running.token_is_new else running.address
        if out.json:
            token = {"token": running.token} if running.token_is_new else {}
            out.value({"url": link, "address": running.address, **token})
        else:
            out.line(f"the inspector is at {out.paint.cyan(link)}")
            if not running.token_is_new:
                file = f"the content of {options.get('token_file')}"
                source = f"the value of {_TOKEN}" if options.get("token") is not None else file
                out.line(out.paint.dim(f"it asks for the token: {source}"))
            out.line(out.paint.dim("Ctrl-C stops it"))
        sys.stdout.flush()
        if browse and _has_browser():
            import webbrowser

            webbrowser.open(running.url + target)

    metrics.start()
    try:
        serve(where, ready=ready, **options)
    finally:
        metrics.stop()


def _has_browser() -> bool:
    """Return whether a graphical browser can open; a text browser would take over this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@command(
    STORE,
    argument("-c", "--context", metavar="NAME", help="the context that the link opens"),
    argument("--host", default="127.0.0.1", metavar="HOST", help="address to bind (default: %(default)s)"),
    argument("--port", type=int, default=8377, metavar="N", help="0 is any free port (default: %(default)s)"),
    argument("--token-file", metavar="FILE", help="the file of the token; created at the first start"),
    argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another host name that requests may use"
    ),
    argument("-b", "--budget", type=token_count, metavar="TOKENS", help="the token budget of new contexts"),
    argument("--create", action="store_true", help="create the store if it does not exist"),
    REDACT,
    argument("--open", action="store_true", help="open the link in a browser"),
    examples=(
        "quire serve agent.db --open",
        "quire serve postgresql://localhost/agents --host 0.0.0.0 --allow-host quire.example --token-file token",
    ),
    about=f"Every request needs a token: the value of {_TOKEN}, the content of the token file, or a new one that is"
    " part of the printed link. Requires pip install 'quire[server]'.",
)
def run_serve(options: argparse.Namespace, out: Output) -> None:
    serve_inspector(
        options.where,
        out,
        browse=options.open,
        token=os.environ.get(_TOKEN) or None,
        hosts=options.allow_host,
        redact=quire.redact_secrets if options.redact else None,
        **pick(options, "context", "host", "port", "token_file", "budget", "create"),
    )
