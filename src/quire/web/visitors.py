"""Who may come in: one place for the rules of every server.

The Host must be one of ours (a page elsewhere cannot reach a server under its own name: DNS rebinding), an Origin must
be the very address that was asked, and where there is a token it has to be brought.
"""

import hmac
from collections.abc import Iterable, Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Refusal(NamedTuple):
    """Why somebody may not come in: a stable code, and words that say what would help."""

    code: str
    message: str


FOREIGN_HOST = Refusal(
    "forbidden_host",
    "This server is not known by that name; let it in with --allow-host NAME, in Python hosts=[NAME].",
)
FOREIGN_ORIGIN = Refusal("forbidden_origin", "Pages of other addresses may not ask this one.")
_NO_TOKEN = Refusal("unauthorized", "Send the token: 'Authorization: Bearer TOKEN'.")
_WRONG_TOKEN = Refusal("unauthorized", "This is not the token of this server.")


class Names:
    """The names that a server is asked by. One that listens beyond this machine knows every address as its own."""

    def __init__(self, bound: str, hosts: Iterable[str] = ()) -> None:
        self._names = {host.lower() for host in (*_LOOPBACK, _bracketed(bound), *hosts)}
        self._any_address = not is_loopback(bound)

    def refusal(self, hosts: Sequence[str], origins: Sequence[str]) -> Refusal | None:
        """Why a request with these Host and Origin headers may not come in; None if it may."""
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self._names or (self._any_address and _is_address(name))):
            return FOREIGN_HOST
        return None if _is_our_origin(origins, hosts[0]) else FOREIGN_ORIGIN


class Token:
    """What every visitor has to bring. It is kept as a digest and compared in constant time."""

    def __init__(self, token: str) -> None:
        self._digest = sha256(token.encode()).digest()

    def refusal(self, authorizations: Sequence[str]) -> Refusal | None:
        """Why a request with these Authorization headers may not come in; the token that was sent is not quoted."""
        scheme, _, given = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        digest = sha256(given.strip().encode("latin-1", "replace")).digest()
        if hmac.compare_digest(digest, self._digest) and scheme.lower() == "bearer":
            return None
        return _WRONG_TOKEN if scheme.lower() == "bearer" and given.strip() else _NO_TOKEN


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host == "localhost" or (_is_address(host) and ip_address(host.strip("[]")).is_loopback)


def _is_our_origin(values: Sequence[str], host: str) -> bool:
    if not values:
        return True  # no browser, or a page of our own that asks by GET
    return len(values) == 1 and values[0].lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _host_name(host: str) -> str | None:
    """The name in a Host header without its port, in lower case; None if it is none."""
    name, bracket, port = host.rpartition("]") if host.startswith("[") else ("", "", host)
    if bracket:
        name, port = name + bracket, port.removeprefix(":")
    elif ":" in port:
        name, _, port = host.partition(":")
    else:
        name, port = host, ""
    return name.lower() if name and (not port or (port.isascii() and port.isdigit())) else None


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
