"""Access to a server over HTTP: the socket it listens on, the token, and the checks of Host, Origin and Authorization.

Shared by `quire.server` and `quire.mcp_server`. Imports no web framework.
"""

import hmac
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import InvalidOperation, InvalidValue, StorageFailure, short_repr
from quire.storage.paths import check_path
from quire.system.rules import check_whole_number

UVICORN_OPTIONS: Mapping[str, Any] = {
    "loop": "asyncio",
    "ws": "none",
    "lifespan": "on",
    "log_config": None,  # the program configures logging
    "proxy_headers": False,
    "server_header": False,
    "timeout_keep_alive": 30,
}
"""The options that all servers pass to uvicorn."""
_MAX_PORT = 65_535
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TOKEN_BYTES = 32
_MIN_TOKEN_LENGTH = 16
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII), "visible ASCII characters"
_URL_TOKEN = re.compile(r"[A-Za-z0-9_.~-]+", re.ASCII), "letters, digits and - _ . ~"
_HOST = re.compile(r"(\[.+\]|[^:\[]+)(?::[0-9]*)?")
_OWNER_ONLY = 0o600

# The socket


def check_host(host: object) -> str:
    """Return `host` if a server can listen on it. Raise `InvalidValue` otherwise."""
    if isinstance(host, str) and host and host.isprintable() and "/" not in host:
        return host
    raise InvalidValue(f"is {short_repr(host)}; a name or an address is needed, such as 127.0.0.1.", argument="host")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`.

    Raise `InvalidValue` for a wrong host or port, and `StorageFailure` if the port is in use.
    """
    if check_whole_number(port, "port") > _MAX_PORT:
        raise InvalidValue(f"is {port}; 0 (any free port) to {_MAX_PORT} is needed.", argument="port")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidValue(f"is {short_repr(host)}, which cannot be bound: {error}.", argument="host") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(256)
    except OSError as error:
        bound.close()
        raise StorageFailure(f"Cannot listen on {host}:{port}: {error}. Try another port.") from None
    bound.setblocking(False)
    return bound


def url_of(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a server bound to `host` and `port`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"http://{_bracket_ipv6(host)}:{port}/"


# The token


class Token(NamedTuple):
    """A token. `is_new` is set if it was generated just now, so that the user has to be shown it."""

    text: str
    is_new: bool


def load_token(token: str | None, file: str | os.PathLike[str] | None, *, in_url: bool = False) -> Token:
    """Return the given token, else the one in `file`, else a new one that is written to `file`.

    A token has 16 or more visible ASCII characters; with `in_url` only those that a URL contains as they are. Raise
    `InvalidValue` for an unusable token, `InvalidOperation` if other users can read the file, and `StorageFailure` if
    the file cannot be read or written.
    """
    if token is not None:
        _check_token(token, "is unusable", "token", in_url=in_url)
        return Token(token, False)
    fresh = secrets.token_urlsafe(_TOKEN_BYTES)
    if file is None:
        return Token(fresh, True)
    path = check_path(file)
    if _create_token_file(path, fresh):
        return Token(fresh, True)
    stored = _read_token(path)
    _check_token(stored, f"is {str(path)!r}, which has an unusable token", "token_file", in_url=in_url)
    return Token(stored, False)


def _check_token(token: object, fact: str, argument: str, *, in_url: bool) -> None:
    """Raise `InvalidValue` with this fact and argument if the token is not usable. The token is not quoted."""
    pattern, characters = _URL_TOKEN if in_url else _TOKEN
    if not (isinstance(token, str) and pattern.fullmatch(token) and len(token) >= _MIN_TOKEN_LENGTH):
        raise InvalidValue(f"{fact}; {_MIN_TOKEN_LENGTH} or more {characters} are needed.", argument=argument)


def _create_token_file(path: Path, token: str) -> bool:
    """Write the token to a new file. Return False if the file exists."""
    try:
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        if path.exists():  # another server created it first
            return False
        raise StorageFailure(f"Cannot write the token to {str(path)!r}: {error}.") from error
    return True


def _read_token(path: Path) -> str:
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidOperation(f"Other users can read the token in {str(path)!r}: chmod 600 it, or remove it.")
            return file.read(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageFailure(f"Cannot read the token in {str(path)!r}: {error}.") from error


# The checks of a request


class Refusal(NamedTuple):
    """The reason to refuse a request: an HTTP status, a stable code, and a message with the next step."""

    status: HTTPStatus
    code: str
    message: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer. A connection is closed if it is unclear where its next request begins."""
        if self is _AMBIGUOUS:
            return {"connection": "close"}
        return {"www-authenticate": "Bearer"} if self.status is HTTPStatus.UNAUTHORIZED else {}


_AMBIGUOUS = Refusal(
    HTTPStatus.BAD_REQUEST,
    "ambiguous_length",
    "Send Content-Length or Transfer-Encoding, not both. The connection is closed.",
)
_FOREIGN_HOST = Refusal(
    HTTPStatus.FORBIDDEN,
    "forbidden_host",
    "The Host header names another server; allow the name with --allow-host NAME, in Python hosts=[NAME].",
)
_FOREIGN_ORIGIN = Refusal(
    HTTPStatus.FORBIDDEN, "forbidden_origin", "Web pages of another origin may not call this server."
)
_NO_TOKEN = Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", "Send the token: 'Authorization: Bearer TOKEN'.")
_WRONG_TOKEN = Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", "This is not the token of this server.")


class AccessCheck:
    """Checks the Host, Origin and Authorization headers of requests.

    Host and Origin prevent DNS rebinding and requests from foreign web pages. Accepted are the loopback names, the
    bound host and `hosts`. A server that other machines can reach also accepts every IP address as its name. Without
    `token` no token is needed; with it, a digest is stored and compared in constant time.
    """

    def __init__(self, bound: str, hosts: Iterable[str], token: str | None) -> None:
        self._names = {host.lower() for host in (*_LOOPBACK, _bracket_ipv6(bound), *hosts)}
        self._any_address = not is_loopback(bound)
        self._digest = None if token is None else sha256(token.encode()).digest()

    def refusal(self, header: Callable[[str], Sequence[str]], *, public: bool = False) -> Refusal | None:
        """Return the reason to refuse a request, or None. `header` returns the values of a header.

        A `public` request needs no token. The reason never quotes the token.
        """
        if header("transfer-encoding") and header("content-length"):
            return _AMBIGUOUS
        hosts = header("host")
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        name = found[1].lower() if found else ""  # without the port
        if not found or not (name in self._names or (self._any_address and _is_address(name))):
            return _FOREIGN_HOST
        if not _is_same_origin(header("origin"), hosts[0]):
            return _FOREIGN_ORIGIN
        return None if public or self._digest is None else self._token_refusal(header("authorization"))

    def _token_refusal(self, authorizations: Sequence[str]) -> Refusal | None:
        scheme, _, given = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        digest = sha256(given.strip().encode("latin-1", "replace")).digest()
        if hmac.compare_digest(digest, self._digest or b"") and scheme.lower() == "bearer":
            return None
        return _WRONG_TOKEN if scheme.lower() == "bearer" and given.strip() else _NO_TOKEN


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server bound to `host`."""
    return host == "localhost" or (_is_address(host) and ip_address(host.strip("[]")).is_loopback)


def _is_same_origin(origins: Sequence[str], host: str) -> bool:
    if not origins:
        return True  # not a browser, or a GET of the same origin
    return len(origins) == 1 and origins[0].lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
