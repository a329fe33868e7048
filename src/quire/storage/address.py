"""The addresses of stores on servers: a PostgreSQL database with a schema and a tenant, and an S3 bucket.

No secret of an address is ever shown: a URL with a special character in a place that it may have reached unescaped from
a password is refused. This module does not need the drivers.
"""

import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.storage.base import check_context_name
from quire.storage.paths import is_secret, mask_secrets

_ESCAPES: Final = "In passwords and options @ is written %40, / %2F, : %3A, ? %3F, # %23, & %26 and % %25."
_FORM: Final = "postgresql://USER@HOST:PORT/DATABASE?tenant=NAME&schema=NAME"
_MAX_LENGTH: Final = 8_192
_HOST: Final = r"(?:\[[0-9A-Za-z:.%]+\]|[^:@=&,\[\]]*)(?::[0-9]{0,5})?"
_PLACE: Final = re.compile(rf"(?:([^:@=&\[\]]*)(?::[^:@]*)?@)?({_HOST}(?:,{_HOST})*)")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(Struct, frozen=True):
    """A parsed URL. `url` goes to the driver, without quire's own options; `name` is safe to show."""

    url: str
    name: str
    tenant: str
    schema: str
    options: tuple[str, ...] = ()
    """The names of the driver's options, up to the first secret."""

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


def parse(url: object, tenant: str | None = None, schema: str | None = None) -> Address:
    """Return the address that a URL names. Tenant and schema may be given separately. Raises `InvalidValue`."""
    text = url if isinstance(url, str) and url.isprintable() else ""
    if len(text) > _MAX_LENGTH:
        raise InvalidValue(
            f"The PostgreSQL URL {short_repr(mask_secrets(text))} has more than {_MAX_LENGTH:,} characters."
        )
    if not text.lower().startswith(("postgresql://", "postgres://")):
        raise InvalidValue(f"This is not a PostgreSQL URL; use {_FORM}.")
    parts, options = _split(text, "PostgreSQL", f"{_FORM}. {_ESCAPES}")
    place = _PLACE.fullmatch(parts.netloc)
    if place is None or "@" in parts.path + parts.query or parts.fragment:
        raise InvalidValue(f"The PostgreSQL URL cannot be parsed; use {_FORM}. {_ESCAPES}")
    tenant = _choose("tenant", options.pop("tenant", None), tenant)
    schema = _choose("schema", options.pop("schema", None), schema)
    driver = f"postgresql://{parts.netloc}{parts.path}"
    return _address(driver, place[1] or "", place[2] + parts.path, options, tenant, schema)


def name_database(user: str, host: str, database: str, tenant: str | None, schema: str | None) -> Address:
    """Return the address of a store behind a connection that exists already. Raises `InvalidValue`."""
    place = f"{quote(host, safe='')}/{quote(database)}"
    return _address("", quote(user), place, {}, _choose("tenant", None, tenant), _choose("schema", None, schema))


def _address(
    driver: str, user: str, place: str, options: dict[str, str], tenant: str | None, schema: str | None
) -> Address:
    """Return an address. Nothing after a secret is shown: & in a password looks like the start of another option."""
    tenant, schema = tenant or "", schema or "quire"
    if tenant:
        check_context_name(tenant)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        needed = "use lower-case letters, digits and _, and do not begin it with pg_."
        raise InvalidValue(f"is {short_repr(schema)}; {needed}", argument="schema")
    shown = dict(takewhile(lambda option: not is_secret(option[0]), options.items()))
    names = tuple(shown)
    shown |= {"tenant": tenant} if tenant else {}
    shown |= {"schema": schema} if schema != "quire" else {}
    query = urlencode(options, quote_via=quote)
    name = f"postgresql://{user}{'@' if user else ''}{place}"
    if shown:
        name += f"?{urlencode(shown, quote_via=quote, safe='/')}"
    return Address(f"{driver}?{query}" if query else driver, name, tenant, schema, names)


def refused(url: str, options: Sequence[Any]) -> InvalidValue:
    """Return the error for a URL that libpq rejects. `options` are those of libpq; an unknown one is named."""
    known = {option.keyword.decode(): option.dispchar != b"D" for option in options}
    name = next((name for name in parse(url).options if name not in known), None)
    if name is None:
        form = "postgresql://USER@HOST:PORT/DATABASE and options of libpq, tenant and schema"
        return InvalidValue(f"The PostgreSQL URL cannot be parsed; use {form}. {_ESCAPES}")
    shown = sorted(each for each, is_shown in known.items() if is_shown)
    near = get_close_matches(name, ["tenant", "schema", *shown], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InvalidValue(
        f"The PostgreSQL URL has an unknown option {short_repr(name)}.{hint} Options: tenant, schema, and those of"
        f" libpq: {', '.join(shown)}."
    )


def _split(url: str, kind: str, form: str) -> tuple[SplitResult, dict[str, str]]:
    """Return the parts and the options of a URL. Raises `InvalidValue`."""
    try:
        parts = urlsplit(url)
        query = parts.query.replace("+", "%2B")  # it is no space, as in a form
        return parts, dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise InvalidValue(f"The {kind} URL cannot be parsed; use {form}") from None


def _choose(name: str, in_url: str | None, given: str | None) -> str | None:
    """Return the one value given for `name`. Raises `InvalidValue` if the URL and the argument differ."""
    if given is not None and not isinstance(given, str):
        raise InvalidValue(f"is {short_repr(given)}; a name is needed.", argument=name)
    if in_url is not None and given is not None and in_url != given:
        raise InvalidValue(f"is {given!r}, but the URL has {name}={in_url!r}.", argument=name)
    return in_url if given is None else given


# S3

_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()=-]+(/[A-Za-z0-9!_.*'()=-]+)*")
_MAX_PREFIX: Final = 160
_BUCKET_FORM: Final = "s3://bucket/prefix?endpoint=https://host&region=name"
BUCKET_OPTIONS: Final = ("endpoint", "region", "virtual_hosted", "timeout_seconds")
_SERVER: Final = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(?=/|$)")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def parse_bucket(url: str, names: tuple[str, ...] = BUCKET_OPTIONS) -> dict[str, Any]:
    """Return bucket, prefix and options of a URL. Raises `InvalidValue`, which never quotes a credential."""
    parts, options = _split(url, "S3", f"{_BUCKET_FORM}.")
    if "@" in url.partition("?")[0] or ":" in parts.netloc or any(map(is_secret, options)):
        raise InvalidValue(
            f"The S3 URL must not contain credentials; use {_BUCKET_FORM}. Set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or pass access_key_id and secret_access_key to S3Storage."
        )
    unknown = sorted(options.keys() - set(names))
    if unknown or parts.scheme != "s3" or parts.fragment:
        problem = f"The S3 URL has an unknown option {_quote(unknown[0])}. " if unknown else ""
        raise InvalidValue(f"{problem}Use {_BUCKET_FORM}; options: {', '.join(names)}.")
    found: dict[str, Any] = {"bucket": parts.netloc, "prefix": unquote(parts.path).strip("/"), **options}
    if "virtual_hosted" in found:
        found["virtual_hosted"] = found["virtual_hosted"].lower() in ("", "1", "true", "yes")
    if "timeout_seconds" in found:
        try:
            found["timeout_seconds"] = float(found["timeout_seconds"])
        except ValueError:
            needed = f"is {short_repr(found['timeout_seconds'])}; a number is needed."
            raise InvalidValue(needed, argument="timeout_seconds") from None
    return found


def display_bucket(url: str) -> str:
    """Return a URL as it may be shown. Raises `InvalidValue`."""
    parsed = parse_bucket(url)
    return f"s3://{parsed['bucket']}/{parsed['prefix']}".rstrip("/") if "@" in url else f"s3{url[2:]}"


def find_endpoint() -> str:
    """Return the endpoint of the server in the environment; empty for AWS."""
    return next((value for name in _ENDPOINTS if (value := os.environ.get(name))), "")


def place_name(bucket: str, prefix: str, endpoint: str, region: str | None) -> str:
    """Return the store and its server for errors, without credentials."""
    url = f"s3://{bucket}/{prefix}".rstrip("/")
    if not endpoint:
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return f"{url} at AWS{f', region {region}' if region else ''}"
    server = _SERVER.match(endpoint)
    return f"{url} at {server[0]}" if server else url


def check_place(bucket: object, prefix: str, endpoint: str, timeout_seconds: float) -> None:
    """Raise `InvalidValue` if these arguments cannot name a store."""
    if not isinstance(bucket, str) or not _BUCKET_NAME.fullmatch(bucket):
        raise InvalidValue(f"is {_quote(bucket)}; a bucket name is needed: {_BUCKET_FORM}.", argument="bucket")
    is_plain = isinstance(prefix, str) and (not prefix or _PREFIX.fullmatch(prefix))
    if not is_plain or len(prefix) > _MAX_PREFIX or any(part in (".", "..") for part in prefix.split("/")):
        raise InvalidValue(
            f"is {_quote(prefix)}; use up to {_MAX_PREFIX} of A-Z a-z 0-9 ! _ . * ' ( ) = - with / between parts.",
            argument="prefix",
        )
    if endpoint and (not endpoint.startswith(("http://", "https://")) or "@" in endpoint):
        raise InvalidValue("must be http://host or https://host, without credentials.", argument="endpoint")
    if not 0 < timeout_seconds < 3_600:
        seconds = short_repr(timeout_seconds)
        raise InvalidValue(f"is {seconds}; a number above 0 and below 3,600 is needed.", argument="timeout_seconds")


def _quote(part: object) -> str:
    """Return a part of an address for an error, unless it looks like credentials."""
    return "(not quoted: it may hold credentials)" if set("@:") & set(str(part)) else short_repr(part)
