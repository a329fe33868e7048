"""Why a server could not be reached, in words of our own: what the client says may quote keys and signatures.

Names as object keys: any name of a context, in an order that is its own, and back again.

An S3 server lists keys by their bytes, so keys of names sort by code point as the names do. The names are written in
letters, digits, `-` and `_`, which no server, proxy or signature treats in a special way.

The seam to the server: a few calls on objects, each one request a try, with errors that say what is known after.

Nothing that a server or client said goes into an error but its status and code: the rest may quote keys and signatures.

Whether a server keeps to conditional writes. One that ignores them would lose commits without a word.

Getting to the server: what a URL or the options say, and the client made of it.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from os import urandom
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from quire.errors import Busy, Corrupt, InvalidValue, QuireError, StorageFailure, short_repr
from quire.storage.paths import is_secret

if TYPE_CHECKING:
    from obstore.store import ObjectStore


_REASONS: Final = tuple(
    (re.compile(sign, re.IGNORECASE), words)
    for sign, words in (
        ("dns error|lookup address|name or service not known", "no such host (DNS); check the endpoint"),
        ("ConnectionRefused", "the connection was refused: nothing listens there; check host and port of the endpoint"),
        ("NetworkUnreachable|HostUnreachable", "no route leads there"),
        ("certificate|UnknownIssuer|NotValidForName|CertExpired", "its certificate is not trusted (TLS)"),
        ("InvalidContentType|InvalidMessage", "no TLS is spoken there; is it http:// instead of https://?"),
        ("HandshakeFailure|AlertReceived|ProtocolVersion", "no TLS connection was agreed on"),
        ("kind: Timeout|TimedOut", "no answer came in time; timeout_seconds says how long to wait"),
        (r"Parse\(", "no HTTP is spoken there; check the endpoint (https:// instead of http://?)"),
        ("ConnectionReset|ConnectionAborted|BrokenPipe|IncompleteMessage|UnexpectedEof", "the connection broke off"),
    )
)


def reason(text: str) -> str:
    """What lies behind a failure of the network; that nothing is known if it is another one."""
    found = (words for sign, words in _REASONS if sign.search(text))
    return next(found, "the reason is not known; check endpoint and network")


_DIGITS: Final = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_FIRST: Final = 6  # of a code point in three digits, the first is one of those from here
_LAST: Final = 62  # to here; the digit after it begins a code point in four
_SHORT: Final = "z{|}~"
_WIDE: Final = (_LAST - _FIRST + 1) << 12
_SEGMENT: Final = 240
"""The most of a name in one part of a key: file names in the folders of some servers end at 255 bytes."""
_END, _MORE = "!", "-/"
MAX_KEY_BYTES: Final = 1024


def _one(char: str) -> str:
    """A character as itself or as a few; what follows a first letter here sorts as the characters do."""
    point = ord(char)
    if point < 0x30:
        return f"-{max(point - 0x20, 0):x}"
    if point < 0x7A:
        if "9" <= char <= "@":
            return f"9{point - ord('9')}"
        if "Z" <= char <= "^":
            return f"Z{point - ord('Z')}"
        return f"_{point - ord('_')}" if "_" <= char <= "`" else char
    if char in _SHORT:
        return f"z{_SHORT.index(char)}"
    number = point - 0x7F
    if number < _WIDE:
        return "z" + _digits(number + (_FIRST << 12), 3)
    return "zz" + _digits(number - _WIDE, 4)


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 6 * place & 63] for place in reversed(range(count)))


def key_of(name: str) -> str:
    """The key of a name, without the prefix of the store."""
    text = "".join(map(_one, name))
    parts = [text[at : at + _SEGMENT] for at in range(0, len(text), _SEGMENT)] or [""]
    return _MORE.join(parts) + _END


def name_of(key: str) -> str | None:
    """The name whose key this is; None if it is no such key."""
    text = key.removesuffix(_END).replace(_MORE, "")
    chars: list[str] = []
    position = 0
    try:
        while position < len(text):
            char, position = _read(text, position)
            chars.append(char)
    except (IndexError, KeyError, ValueError):
        return None
    name = "".join(chars)
    return name if key_of(name) == key else None


def _read(text: str, position: int) -> tuple[str, int]:
    lead, following = text[position], text[position + 1 : position + 2]
    match lead:
        case "-":
            return chr(0x20 + int(following, 16)), position + 2
        case "9" | "Z" | "_":
            return chr(ord(lead) + int(following)), position + 2
        case "z" if following in "01234":
            return _SHORT[int(following)], position + 2
        case "z" if following == "z":
            return chr(_number(text[position + 2 : position + 6]) + _WIDE + 0x7F), position + 6
        case "z":
            return chr(_number(text[position + 1 : position + 4]) - (_FIRST << 12) + 0x7F), position + 4
        case _:
            return lead, position + 1


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number << 6 | _VALUES[digit]
    return number


def check_key(key: str, name: str) -> str:
    """The key if a server can take it. Raises `InvalidValue`."""
    if len(key) <= MAX_KEY_BYTES:
        return key
    raise InvalidValue(
        f"Context name {short_repr(name)} makes a key of {len(key):,} bytes; S3 takes {MAX_KEY_BYTES:,}."
    )


T = TypeVar("T")
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_RANGE: Final = re.compile(r"range (starting|was|that)|invalid range", re.IGNORECASE)
_PAUSES: Final = (0.05, 0.2, 0.8)
"""How long to wait before each further try."""
_LISTED: Final = 1_000
_TOGETHER: Final = 1_000


class Refused(Exception):
    """A conditional write was not done: the object is not as the writer thought."""


class Missing(Exception):
    """The object is not there."""


class Unanswered(Exception):
    """The request failed in a way that leaves open whether the server did it; the text says how."""

    def __init__(self, text: str, *, overloaded: bool = False) -> None:
        super().__init__(text)
        self.overloaded = overloaded


class Fetched(NamedTuple):
    """An object as it was read."""

    data: bytes
    tag: str
    modified: datetime


class Listed(NamedTuple):
    """An object as a listing tells of it."""

    key: str
    size: int
    modified: datetime


class Objects:
    """The objects below one prefix of a bucket. `requests` counts what was sent, by kind."""

    def __init__(self, store: "ObjectStore", prefix: str, place: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self.place = place
        """How errors name the store and its server: without any credentials."""
        self.requests: Counter[str] = Counter()

    def get(self, key: str, known: str | None = None) -> Fetched | None:
        """The object; None if it still has the tag that is known. Raises `Missing`."""
        import obstore
        from obstore.exceptions import NotModifiedError

        def read() -> Fetched | None:
            try:
                found = obstore.get(self._store, self._prefix + key, options={"if_none_match": known} if known else {})
                data = bytes(found.bytes())
            except NotModifiedError:
                return None
            return Fetched(data, found.meta["e_tag"] or "", found.meta["last_modified"])

        return self._patiently("get", key, read)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` of an object. Raises `Missing`."""
        import obstore

        return self._patiently(
            "get", key, lambda: bytes(obstore.get_range(self._store, self._prefix + key, start=start, end=stop))
        )

    def put(self, key: str, data: bytes) -> None:
        """Write an object that nobody else writes; doing it twice does no harm."""
        import obstore

        self._patiently("put", key, lambda: obstore.put(self._store, self._prefix + key, data, use_multipart=False))

    def create(self, key: str, data: bytes) -> str:
        """Write an object that must not exist; its tag. One try. Raises `Refused`, or `Unanswered`."""
        return self._conditionally(key, data, "create")

    def replace(self, key: str, data: bytes, tag: str) -> str:
        """Write an object that must still have this tag; its new tag. One try. Raises `Refused`, or `Unanswered`."""
        return self._conditionally(key, data, {"e_tag": tag})

    def list(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """What lies below a prefix, by key, from after a key on. Streams, one request a thousand."""
        pages: Iterator[Any] | None = None

        def page() -> Any:
            """The next page; where one failed, a new listing begins after what was seen."""
            nonlocal pages
            going, pages = pages or self._pages(prefix, after), None
            found = next(going, None)
            pages = going
            return found

        while True:
            found = self._patiently("list", prefix, page)
            for meta in found or ():
                after = meta["path"].removeprefix(self._prefix)
                yield Listed(after, meta["size"], meta["last_modified"])
            if found is None or len(found) < _LISTED:
                return

    def copy(self, key: str, target: str) -> None:
        """Copy an object on the server. Raises `Missing`."""
        import obstore

        self._patiently("copy", key, lambda: obstore.copy(self._store, self._prefix + key, self._prefix + target))

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand a request; those that are not there are fine."""
        import obstore

        for start in range(0, len(keys), _TOGETHER):
            batch = [self._prefix + key for key in keys[start : start + _TOGETHER]]
            one = batch[0] if len(batch) == 1 else batch
            with suppress(Missing):
                self._patiently("delete", keys[start], partial(obstore.delete, self._store, one))

    def failure(self, error: Unanswered, key: str) -> QuireError:
        """The error to raise when a server did not answer until patience ran out."""
        text = f"{self.place}: {error} at {key!r}."
        return Busy(f"{text} The server is overloaded: retry.") if error.overloaded else StorageFailure(text)

    def _conditionally(self, key: str, data: bytes, mode: Any) -> str:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def write() -> str:
            try:
                done = obstore.put(self._store, self._prefix + key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                raise Refused from None
            return done["e_tag"] or ""

        try:
            return self._try("put", key, write)
        except Missing:  # some servers say so of a replacement
            raise Refused from None

    def _pages(self, prefix: str, after: str) -> Iterator[Any]:
        import obstore

        offset = self._prefix + after if after else None
        return iter(obstore.list(self._store, prefix=self._prefix + prefix, offset=offset, chunk_size=_LISTED))

    def _patiently(self, kind: str, key: str, action: Callable[[], T]) -> T:
        """Do what can be done again, a few times if need be."""
        for pause in (*_PAUSES, None):
            try:
                return self._try(kind, key, action)
            except Unanswered as error:
                if pause is None:
                    raise self.failure(error, key) from None
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _try(self, kind: str, key: str, action: Callable[[], T]) -> T:
        """One request. Raises what is known after it failed."""
        from obstore.exceptions import BaseError

        self.requests[kind] += 1
        try:
            return action()
        except Refused:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._told(error, key) from None

    def _told(self, error: Exception, key: str) -> Exception:
        text = str(error)
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        code = found[1] if (found := _CODE.search(text)) else ""
        if code == "NoSuchBucket":
            return StorageFailure(f"{self.place}: there is no such bucket; make it first, or check its name.")
        if isinstance(error, FileNotFoundError) or status == 404:
            return Missing(key)
        said = f"{status} {code}".strip()
        if status == 416 or (not status and _RANGE.search(text)):
            return damaged(key, "its end")
        if status in (401, 403):
            return StorageFailure(f"{self.place}: access to {key!r} was refused ({said}); check the credentials.")
        if status in (301, 307, 400) or (404 < status < 500 and status not in (408, 409, 425, 429)):
            return StorageFailure(f"{self.place}: the server refused {key!r} ({said}); check endpoint and region.")
        if status:
            return Unanswered(f"the server failed ({said})", overloaded=status in (429, 503))
        if "credential" in text.lower():
            return StorageFailure(
                f"{self.place}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give"
                " access_key_id and secret_access_key."
            )
        return Unanswered(f"the server could not be reached or did not answer ({reason(text)})")


def damaged(key: str, what: str) -> Corrupt:
    """The error for an object that is not what was written."""
    return Corrupt(f"The object {key!r} is damaged: {what} cannot be read. Restore it from a backup or a version.")


_probed: set[tuple[str, str]] = set()
_lock = Lock()


def probe(objects: Objects, endpoint: str, bucket: str) -> None:
    """Try conditional writes on an object of its own; five requests, once a process and bucket.

    Raises `StorageFailure` if the server ignores the conditions or refuses what fulfils them.
    """
    with _lock:
        if (endpoint, bucket) in _probed:
            return
        key = f"probes/{urandom(8).hex()}"
        try:
            _try(objects, key)
        except Unanswered as error:
            raise objects.failure(error, key) from None
        _probed.add((endpoint, bucket))


def _try(objects: Objects, key: str) -> None:
    tag = objects.create(key, urandom(8))
    try:
        _must_refuse(objects, "If-None-Match", lambda: objects.create(key, urandom(8)))
        _must_refuse(objects, "If-Match", lambda: objects.replace(key, urandom(8), f'"{urandom(16).hex()}"'))
        try:
            objects.replace(key, urandom(8), tag)
        except Refused:
            raise StorageFailure(
                f"{objects.place}: the server refuses a write whose If-Match holds; quire cannot commit there."
            ) from None
    finally:
        with suppress(QuireError):  # `collect` removes what stays
            objects.delete([key])


def _must_refuse(objects: Objects, header: str, write: Callable[[], object]) -> None:
    try:
        write()
    except Refused:
        return
    raise StorageFailure(
        f"{objects.place}: the server ignores {header}, so two writers would overwrite each other."
        " Use a server with conditional writes (AWS S3, MinIO, SeaweedFS, Cloudflare R2, …)."
    )


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
            found[name] = _number_connecting(name, found[name], kind)
    return found


def place_of(url: str) -> str:
    """The store that a URL names, as it may be shown. Raises `InvalidValue`."""
    named = parse_url(url)
    return f"s3://{named['bucket']}/{named['prefix']}".rstrip("/") if "@" in url else f"s3{url[2:]}"


def _number_connecting(name: str, text: str, kind: type[float] | type[int]) -> float | int:
    try:
        return kind(text)
    except ValueError:
        raise InvalidValue(f"{name} is {short_repr(text)}; give a number.") from None


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
    return "(not quoted: it may hold credentials)" if set("@:") & set(str(part)) else short_repr(part)


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
        raise InvalidValue(f"timeout_seconds is {short_repr(connection.timeout_seconds)}; give seconds, up to an hour.")
