"""The gateway: an HTTP proxy that unchanged clients use as the base URL of their model provider.

It keeps every conversation as a context of a store. In the mode `observe` it forwards every byte unchanged and records.
In the mode `fold` it sends a view that fits when a conversation outgrows the budget. It needs
the extra `gateway`, which is imported on use.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from quire.core.redaction import Redaction
from quire.errors import InvalidOperation, InvalidValue, NotInstalled, check_names, short_repr
from quire.library import Library
from quire.server.access import bind, check_host, is_loopback, load_token
from quire.server.gateway_ledger import check_mode
from quire.storage.urls import StoreLocation
from quire.system.rules import check_whole_number
from quire.view.options import CompressionConfig, Summariser, check_budget, check_config

if TYPE_CHECKING:
    import socket
    from typing import Unpack

    from quire.gateway.gateway_server import RunningGateway
    from quire.gateway.proxy import Gateway

__all__ = ["Settings", "create_app", "serve", "start"]

DEFAULT_PORT = 8379


class Settings(TypedDict, total=False):
    """The settings of a gateway.

    `anthropic` and `openai` are the URLs of the upstreams; at least one is needed. `mode` is `"observe"` (the default)
    or `"fold"`, and `budget` the most tokens of a request that `fold` sends (120,000). `host` and `port` are the
    address to listen on (port 0: any free port), `hosts` further accepted Host names. An address that other machines
    can reach needs `token`, or `token_file`, which is created at the first start. The token is part of the base URL.
    `max_body` is the size in bytes above which a request is passed on without being read. `redact` is applied to texts
    before they are stored, and `summariser` writes the summaries of folded messages, both as in `quire.open`.
    """

    anthropic: str | None
    openai: str | None
    mode: Literal["observe", "fold"]
    budget: int
    host: str
    port: int
    hosts: Sequence[str]
    token: str | None
    token_file: str | os.PathLike[str] | None
    max_body: int
    connect_timeout: float
    redact: Callable[[str], str] | None
    summariser: Summariser | None


def create_app(where: StoreLocation, **settings: "Unpack[Settings]") -> "Gateway":
    """Return the gateway of a store as an ASGI application. `port` has no effect."""
    return _build(where, dict(settings))


def start(where: StoreLocation, **settings: "Unpack[Settings]") -> "RunningGateway":
    """Run the gateway of a store in a new thread. The returned object has the `url` for clients and stops it."""
    return prepare(where, dict(settings)).start()


def serve(
    where: StoreLocation, *, ready: "Callable[[RunningGateway], None] | None" = None, **settings: "Unpack[Settings]"
) -> None:
    """Run the gateway of a store until SIGINT or SIGTERM. `ready` is called when it listens."""
    prepare(where, dict(settings)).run(ready)


def prepare(
    where: StoreLocation, settings: dict[str, Any], listening: "socket.socket | None" = None
) -> "RunningGateway":
    """Return a gateway that is not started yet. `listening` is a socket to use instead of the host and the port."""
    gateway = _build(where, settings)
    from quire.gateway.gateway_server import RunningGateway

    if listening is None:
        listening = bind(gateway.options.host, settings.get("port", DEFAULT_PORT))
    return RunningGateway(gateway, listening)


def _build(where: StoreLocation, settings: dict[str, Any]) -> "Gateway":
    try:
        from quire.gateway.proxy import Gateway, Options
        from quire.gateway.sessions import Sessions
        from quire.gateway.upstream import parse_address
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "quire":
            raise
        raise NotInstalled(f"The gateway needs {package}", "gateway", name=package) from None
    check_names(settings, Settings.__annotations__, "start")
    check_mode(settings.get("mode", "observe"))
    addresses = {name: parse_address(settings[name], name) for name in ("anthropic", "openai") if settings.get(name)}
    if not addresses:
        raise InvalidOperation(
            "A gateway needs the URL of an upstream: anthropic or openai, such as --anthropic https://api.anthropic.com."
        )
    host = check_host(settings.get("host", "127.0.0.1"))
    _check_limits(settings)
    limits = {name: settings[name] for name in ("mode", "max_body", "connect_timeout") if name in settings}
    options = Options(
        host=host,
        hosts=_check_hosts(settings.get("hosts", ())),
        token=_token_of(settings, host),
        budget=check_budget(settings.get("budget", 120_000)),
        **limits,
    )
    summariser = settings.get("summariser")
    compression = None if summariser is None else check_config(CompressionConfig(summariser=summariser))
    library = Library(where, redact=settings.get("redact"))
    sessions = Sessions(library, mode=options.mode, budget=options.budget, compression=compression)
    return Gateway(addresses, sessions, options)  # type: ignore[arg-type]


def _check_limits(settings: dict[str, Any]) -> None:
    """Raise `InvalidValue` if a limit, or `redact`, has an unusable value."""
    if "max_body" in settings:
        check_whole_number(settings["max_body"], "max_body")
    seconds = settings.get("connect_timeout", 1)
    if type(seconds) not in (int, float) or not seconds > 0:
        raise InvalidValue(
            f"is {short_repr(seconds)}; a number of seconds above 0 is needed.", argument="connect_timeout"
        )
    if settings.get("redact") is not None:
        Redaction(settings["redact"])


def _check_hosts(hosts: object) -> tuple[str, ...]:
    if isinstance(hosts, list | tuple | set | frozenset) and all(isinstance(host, str) and host for host in hosts):
        return tuple(hosts)
    raise InvalidValue(
        f"is {short_repr(hosts)}; a list of names is needed, such as ['quire.example'].", argument="hosts"
    )


def _token_of(settings: dict[str, Any], host: str) -> str | None:
    """Return the token; None if none is given and only this machine can reach the gateway."""
    given, file = settings.get("token"), settings.get("token_file")
    if given is None and file is None:
        if is_loopback(host):
            return None
        raise InvalidOperation(
            f"Other machines can reach {host}: give a token, or a token_file (QUIRE_TOKEN, or --token-file FILE)."
        )
    return load_token(given, file, in_url=True).text
