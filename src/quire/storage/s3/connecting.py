"""Getting to the server: what a URL or the options say, and the client made of it."""

import os
import re
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from quire.errors import InvalidValue, QuireError, shown
from quire.storage.addresses import is_secret
from quire.storage.s3.objects import Objects

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()=-]+(/[A-Za-z0-9!_.*'()=-]+)*")
_MAX_PREFIX: Final = 160
_FORM: Final = "s3://bucket/prefix?endpoint=https://host&region=name"
_OPTIONS: Final = ("endpoint", "region", "virtual_hosted", "upkeep", "grace_seconds", "timeout_seconds", "cache_bytes")
_SERVER: Final = re.compile(r"https?://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(?=/|$)")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class Connection(Struct, frozen=True, kw_only=True):
    """How to get to a bucket. It is not shown, since it may hold credentials."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    virtual_hosted: bool
    credential_provider: Any
    timeout_seconds: float

    def __repr__(self) -> str:
        return f"<connection to {self.place}>"

    @property
    def place(self) -> str:
        """The store as errors name it, and which server it is on."""
        name = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        if not self.address:
            region = self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
            return f"{name} at AWS{f', region {region}' if region else ''}"
        server = _SERVER.match(self.address)
        return f"{name} at {server[0]}" if server else name

    @property
    def address(self) -> str:
        """Where the server is; empty for AWS itself."""
        named = (value for name in _ENDPOINTS if (value := os.environ.get(name)))
        return self.endpoint or next(named, "")


def parse_url(url: str) -> dict[str, Any]:
    """The arguments of `S3Storage` in a URL. Raises `InvalidValue`, and never quotes what may be a credential."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise InvalidValue(f"The S3 URL cannot be read; give {_FORM}.") from None
    if "@" in url.partition("?")[0] or ":" in parts.netloc or any(map(is_secret, options)):
        raise InvalidValue(
            f"Give {_FORM}. A URL is no place for credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
            " give them to S3Storage(access_key_id=…, secret_access_key=…)."
        )
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown or parts.scheme != "s3" or parts.fragment:
        what = f"Option {_quoted(unknown[0])} is unknown. " if unknown else ""
        raise InvalidValue(f"{what}Give {_FORM}; options: {', '.join(_OPTIONS)}.")
    found: dict[str, Any] = {"bucket": parts.netloc, "prefix": unquote(parts.path).strip("/"), **options}
    if "virtual_hosted" in found:
        found["virtual_hosted"] = found["virtual_hosted"].lower() in ("", "1", "true", "yes")
    for name, kind in (("grace_seconds", float), ("timeout_seconds", float), ("cache_bytes", int)):
        if name in found:
            found[name] = _number(name, found[name], kind)
    return found


def place_of(url: str) -> str:
    """The store that a URL names, as it may be shown. Raises `InvalidValue`."""
    named = parse_url(url)
    return f"s3://{named['bucket']}/{named['prefix']}".rstrip("/") if "@" in url else f"s3{url[2:]}"


def _number(name: str, text: str, kind: type[float] | type[int]) -> float | int:
    try:
        return kind(text)
    except ValueError:
        raise InvalidValue(f"{name} is {shown(text)}; give a number.") from None


def connect(connection: Connection) -> Objects:
    """The objects there. Sends nothing. Raises `InvalidValue`, or `QuireError` if obstore is not installed."""
    _check(connection)
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise QuireError("S3 needs obstore: pip install 'quire[s3]'.") from None
    given = {
        "endpoint": connection.address or None,
        "region": connection.region,
        "access_key_id": connection.access_key_id,
        "secret_access_key": connection.secret_access_key,
        "session_token": connection.session_token,
        "credential_provider": connection.credential_provider,
    }
    timeout = timedelta(seconds=connection.timeout_seconds)
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        store = S3Store(
            connection.bucket,
            virtual_hosted_style_request=connection.virtual_hosted,
            client_options={
                "allow_http": connection.address.startswith("http://"),
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=5)),
            },
            retry_config={"max_retries": 0},  # what may be done again, and when, is decided here
            **options,
        )
    except (BaseError, ValueError, TypeError):
        raise InvalidValue(f"{connection.place}: endpoint, region and credentials make no connection.") from None
    return Objects(store, connection.prefix, connection.place)


def _quoted(part: object) -> str:
    """A part of an address as an error may quote it: not if it looks like somebody's credentials."""
    return "(not quoted: it may hold credentials)" if set("@:") & set(str(part)) else shown(part)


def _check(connection: Connection) -> None:
    if not isinstance(connection.bucket, str) or not _BUCKET.fullmatch(connection.bucket):
        raise InvalidValue(f"Bucket {_quoted(connection.bucket)} is no name of a bucket; give {_FORM}.")
    prefix = connection.prefix
    plain = isinstance(prefix, str) and (not prefix or _PREFIX.fullmatch(prefix))
    if not plain or len(prefix) > _MAX_PREFIX or any(part in (".", "..") for part in prefix.split("/")):
        raise InvalidValue(
            f"Prefix {_quoted(prefix)} is not allowed; use up to {_MAX_PREFIX} of A-Z a-z 0-9 ! _ . * ' ( ) = -"
            " with / between parts."
        )
    address = connection.address
    if address and (not address.startswith(("http://", "https://")) or "@" in address):
        raise InvalidValue("The endpoint must be http://host or https://host, without credentials.")
    if not 0 < connection.timeout_seconds < 3_600:
        raise InvalidValue(f"timeout_seconds is {shown(connection.timeout_seconds)}; give seconds, up to an hour.")
