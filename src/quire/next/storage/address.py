"""The address of a store: the URL of a database, a schema and a tenant. A password in it is never shown.

URLs are read as libpq reads them, not as a browser does: before the `@`, `#` and `?` are ordinary characters. This
module does not need the driver.
"""

import re
from itertools import takewhile
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.next.storage.contract import check_context_name
from quire.next.storage.paths import is_secret, mask_secrets

SCHEMES: Final = ("postgresql", "postgres")
ESCAPES: Final = "In passwords and options @ is written %40, / %2F, : %3A, ? %3F, # %23, & %26 and % %25."
_FORM: Final = "postgresql://USER@HOST:PORT/DATABASE?tenant=NAME&schema=NAME"
_MAX_LENGTH: Final = 8_192
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_USER = re.compile(r"[^?#=&/\[\]]*")
_OPTION = re.compile(r"\?[A-Za-z_]+=")
_HOST = re.compile(r"(\[[0-9A-Za-z:.%]+\]|[^:@?#=&\[\]]*)(:[0-9]{0,5})?")


class Address(Struct, frozen=True):
    """A parsed URL. `url` goes to the driver, without quire's own options; `name` is safe to show."""

    url: str
    name: str
    tenant: str
    schema: str

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class _Parts(NamedTuple):
    """The parts of a URL. Only the options are decoded."""

    user: str
    password: str | None
    hosts: str
    path: str
    options: dict[str, str]


def parse(url: object, tenant: str | None = None, schema: str | None = None) -> Address:
    """Return the address that a URL names. Tenant and schema may be given separately. Raises `InvalidValue`."""
    if isinstance(url, str) and len(url) > _MAX_LENGTH:
        raise InvalidValue(
            f"The PostgreSQL URL {short_repr(mask_secrets(url))} has more than {_MAX_LENGTH:,} characters."
        )
    parts = _split(url)
    options = dict(parts.options)
    tenant, schema = _check_names(
        _choose("tenant", options.pop("tenant", None), tenant), _choose("schema", options.pop("schema", None), schema)
    )
    return Address(_driver_url(parts, options), _display_name(parts, options, tenant, schema), tenant, schema)


def name_database(user: str, host: str, database: str, tenant: str | None, schema: str | None) -> Address:
    """Return the address of a store behind a connection that exists already. Raises `InvalidValue`."""
    tenant, schema = _check_names(_choose("tenant", None, tenant), _choose("schema", None, schema))
    parts = _Parts(quote(user), None, quote(host, safe=""), f"/{quote(database)}", {})
    return Address("", _display_name(parts, {}, tenant, schema), tenant, schema)


def _check_names(tenant: str | None, schema: str | None) -> tuple[str, str]:
    """Return tenant and schema, or their defaults. Raises `InvalidValue`."""
    tenant, schema = tenant or "", schema or "quire"
    if tenant:
        check_context_name(tenant)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise InvalidValue(
            f"is {short_repr(schema)}; use lower-case letters, digits and _, and do not begin it with pg_.",
            argument="schema",
        )
    return tenant, schema


def find_unknown_option(url: str, known: frozenset[str]) -> str | None:
    """Return the first option of a URL that is not in `known`. Return None if it may be part of a password."""
    for name in _split(url).options:
        if is_secret(name):
            return None
        if name not in known:
            return name
    return None


def _split(url: object) -> _Parts:
    """Return the parts of a URL. Raises `InvalidValue`, which quotes nothing: the URL may hold a password."""
    text = url if isinstance(url, str) and url.isprintable() else ""
    scheme, marks, rest = text.partition("://")
    if scheme.lower() not in SCHEMES or not marks:
        raise InvalidValue(f"This is not a PostgreSQL URL; use {_FORM}.")
    authority, slash, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    hosts, mark, query = hosts.partition("?")
    if mark:
        path, query = "", query + slash + path
    else:
        path, _, query = (slash + path).partition("?")
    user, colon, password = login.partition(":")
    is_valid = _USER.fullmatch(user) and all(_HOST.fullmatch(host) for host in hosts.split(","))
    if not is_valid or "@" in path or _OPTION.search(login):
        raise InvalidValue(f"The PostgreSQL URL cannot be parsed; use {_FORM}. {ESCAPES}")
    return _Parts(user, password if colon else None, hosts, path, _parse_options(query))


def _parse_options(query: str) -> dict[str, str]:
    options = {}
    for pair in query.split("&") if query else ():
        name, equals, value = pair.partition("=")
        if not name or not equals or ("@" in pair and not is_secret(name)):
            raise InvalidValue(f"An option of the PostgreSQL URL cannot be parsed; use {_FORM}. {ESCAPES}")
        options[unquote(name)] = unquote(value)
    return options


def _driver_url(parts: _Parts, options: dict[str, str]) -> str:
    password = "" if parts.password is None else ":" + parts.password.replace("@", "%40")
    at = "@" if parts.user or password else ""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{parts.user}{password}{at}{parts.hosts}{parts.path}{query}"


def _display_name(parts: _Parts, options: dict[str, str], tenant: str, schema: str) -> str:
    # Nothing after a secret is shown: an unescaped & in a password looks like the start of another option.
    shown = list(takewhile(lambda option: not is_secret(option[0]), options.items()))
    shown += [("tenant", tenant)] if tenant else []
    shown += [("schema", schema)] if schema != "quire" else []
    query = f"?{urlencode(shown, quote_via=quote, safe='/')}" if shown else ""
    return f"postgresql://{parts.user}{'@' if parts.user else ''}{parts.hosts}{parts.path}{query}"


def _choose(name: str, in_url: str | None, given: str | None) -> str | None:
    """Return the one value given for `name`. Raises `InvalidValue` if the URL and the argument differ."""
    if given is not None and not isinstance(given, str):
        raise InvalidValue(f"is {short_repr(given)}; a name is needed.", argument=name)
    if in_url is not None and given is not None and in_url != given:
        raise InvalidValue(f"is {given!r}, but the URL has {name}={in_url!r}.", argument=name)
    return in_url if given is None else given
