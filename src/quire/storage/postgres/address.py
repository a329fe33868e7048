"""Where a store is: the URL of a database, and which schema and tenant of it. A password in it is never shown.

It is read as libpq reads it, which is not as a browser would: `#` and `?` are signs like any other before the `@`.
"""

import re
from itertools import takewhile
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.storage.addresses import is_secret, veiled
from quire.storage.base import check_context_name

SCHEMES: Final = ("postgresql", "postgres")
_LONGEST: Final = 8_192
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FORM = "postgresql://USER@HOST:PORT/DATABASE?tenant=NAME&schema=NAME"
_USER = re.compile(r"[^?#=&/\[\]]*")
_OPTION = re.compile(r"\?[A-Za-z_]+=")
_HOST = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^:@?#=&\[\]]*)(:[0-9]{0,5})?")
ESCAPES: Final = "In passwords and options @ is written %40, / %2F, : %3A, ? %3F, # %23, & %26 and % %25."


class Address(Struct, frozen=True):
    """`url` is what the driver is given, without what is ours; `name` is what may be shown."""

    url: str
    name: str
    tenant: str
    schema: str

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class _Parts(NamedTuple):
    """A URL cut up, nothing decoded but the options."""

    user: str
    password: str | None
    hosts: str
    path: str
    options: dict[str, str]


def parse(url: object, tenant: str | None = None, schema: str | None = None) -> Address:
    """The address a URL names; tenant and schema may also be given apart. Raises `InvalidValue`."""
    if isinstance(url, str) and len(url) > _LONGEST:
        raise InvalidValue(f"The PostgreSQL URL {shown(veiled(url))} is too long; at most {_LONGEST:,} characters.")
    parts = _parts(url)
    rest = dict(parts.options)
    tenant = _one("tenant", rest.pop("tenant", None), tenant) or ""
    schema = _one("schema", rest.pop("schema", None), schema) or "quire"
    if tenant:
        check_context_name(tenant)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidValue(f"schema is {shown(schema)}; a name of small letters, digits and _ is needed, not pg_….")
    return Address(_url(parts, rest), _name(parts, rest, tenant, schema), tenant, schema)


def unknown_option(url: str, known: frozenset[str]) -> str | None:
    """The first option of a URL that is not known; None where it may be a piece of a password."""
    for name in _parts(url).options:
        if is_secret(name):
            return None
        if name not in known:
            return name
    return None


def _parts(url: object) -> _Parts:
    """The parts of a URL. Raises `InvalidValue`, which quotes nothing: it may hold a password."""
    text = url if isinstance(url, str) and url.isprintable() else ""
    scheme, marks, rest = text.partition("://")
    if scheme.lower() not in SCHEMES or not marks:
        raise InvalidValue(f"This is no PostgreSQL URL; give {_FORM}.")
    place, slash, path = rest.partition("/")
    before, _, hosts = place.rpartition("@")
    hosts, mark, query = hosts.partition("?")
    if mark:
        path, query = "", query + slash + path
    else:
        path, _, query = (slash + path).partition("?")
    user, colon, password = before.partition(":")
    plain = _USER.fullmatch(user) and all(_HOST.fullmatch(host) for host in hosts.split(","))
    if not plain or "@" in path or _OPTION.search(before):
        raise InvalidValue(f"The PostgreSQL URL is not understood; give {_FORM}. {ESCAPES}")
    return _Parts(user, password if colon else None, hosts, path, _options(query))


def _options(query: str) -> dict[str, str]:
    options = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        if not name or not equals or ("@" in pair and not is_secret(name)):
            raise InvalidValue(f"An option of the PostgreSQL URL is not understood; give {_FORM}. {ESCAPES}")
        options[unquote(name)] = unquote(value)
    return options


def _url(parts: _Parts, options: dict[str, str]) -> str:
    password = "" if parts.password is None else ":" + parts.password.replace("@", "%40")
    at = "@" if parts.user or password else ""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{parts.user}{password}{at}{parts.hosts}{parts.path}{query}"


def _name(parts: _Parts, options: dict[str, str], tenant: str, schema: str) -> str:
    kept = list(takewhile(lambda option: not is_secret(option[0]), options.items()))  # an & may be a password's
    kept += [("tenant", tenant)] if tenant else []
    kept += [("schema", schema)] if schema != "quire" else []
    query = f"?{urlencode(kept, quote_via=quote, safe='/')}" if kept else ""
    return f"postgresql://{parts.user}{'@' if parts.user else ''}{parts.hosts}{parts.path}{query}"


def _one(what: str, in_url: str | None, given: str | None) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InvalidValue(f"{what} is {shown(given)}; a name is needed.")
    if in_url is not None and given is not None and in_url != given:
        raise InvalidValue(f"The URL has {what} {in_url!r} and the option says {given!r}: give one of them.")
    return in_url if given is None else given
