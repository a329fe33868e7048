"""Where a store is: the URL of a database, and which schema and tenant of it. A password in it is never shown."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.storage.base import check_context_name

SCHEMES: Final = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SECRET = re.compile("pass|secret|token|key", re.IGNORECASE)
_FORM = "postgresql://USER@HOST:PORT/DATABASE?tenant=NAME&schema=NAME"


class Address(Struct, frozen=True):
    """`url` is what the driver is given, without what is ours; `name` is what may be shown."""

    url: str
    name: str
    tenant: str
    schema: str


def parse(url: object, tenant: str | None = None, schema: str | None = None) -> Address:
    """The address a URL names; tenant and schema may also be given apart. Raises `InvalidValue`."""
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() else None
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts and parts.query else []
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in SCHEMES:
        raise InvalidValue(f"This is no PostgreSQL URL; give {_FORM}.")  # it may hold a password: it is not quoted
    options = dict(pairs)
    tenant = _one("tenant", options.pop("tenant", None), tenant) or ""
    schema = _one("schema", options.pop("schema", None), schema) or "quire"
    if tenant:
        check_context_name(tenant)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidValue(f"schema is {shown(schema)}; a name of small letters, digits and _ is needed, not pg_….")
    query = urlencode(options, quote_via=quote)
    return Address(urlunsplit(parts._replace(query=query)), _name(parts.netloc, parts.path, options), tenant, schema)


def _one(what: str, in_url: str | None, given: str | None) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InvalidValue(f"{what} is {shown(given)}; a name is needed.")
    if in_url is not None and given is not None and in_url != given:
        raise InvalidValue(f"The URL has {what} {in_url!r} and the option says {given!r}: give one of them.")
    return in_url if given is None else given


def _name(place: str, path: str, options: Mapping[str, str]) -> str:
    user, at, host = place.rpartition("@")
    shown_user = user.partition(":")[0]
    kept = {name: value for name, value in options.items() if not _SECRET.search(name)}
    query = f"?{urlencode(kept, quote_via=quote, safe='/')}" if kept else ""
    return f"postgresql://{shown_user}{at}{host}{path}{query}"
