"""Where a server listens."""

import socket

from quire.errors import InvalidValue, StorageFailure, short_repr
from quire.system.rules import check_whole_number

_MAX_PORT = 65_535


def check_host(host: object) -> str:
    """A host that can be listened at. Raises `InvalidValue`."""
    if isinstance(host, str) and host and host.isprintable() and "/" not in host:
        return host
    raise InvalidValue(f"host is {short_repr(host)}; a name or an address is needed, such as 127.0.0.1.")


def listening_at(host: str, port: int) -> socket.socket:
    """A socket that listens at this place. Raises `InvalidValue`, or `StorageFailure` if it is taken."""
    if check_whole_number(port, "port") > _MAX_PORT:
        raise InvalidValue(f"port is {port}; 0 (any that is free) to {_MAX_PORT} is needed.")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        one = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidValue(f"host is {short_repr(host)}, which cannot be bound to: {error}.") from None
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(place)
        one.listen(256)
    except OSError as error:
        one.close()
        raise StorageFailure(f"Cannot listen at {host}:{port}: {error}. Another port may be free.") from None
    one.setblocking(False)
    return one


def address_of(host: str, port: int) -> str:
    """Where something that is bound there can be asked from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{port}/"
