"""The S3 client: a few calls on objects, the check of a server's conditional writes, and the address of a store.

Every call sends one request per attempt. Its error says whether the server may have carried out the request. Errors
contain only the status and the code of an answer: the other parts of an answer may quote keys and signatures.
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

from quire.errors import Busy, Corrupt, InvalidValue, NotInstalled, QuireError, StorageFailure, short_repr
from quire.storage.address import BUCKET_OPTIONS, check_place, parse_bucket, place_name

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
_REASONS: Final = (
    (("dns error", "lookup address", "name or service not known"), "no such host (DNS); check the endpoint"),
    (("connectionrefused",), "connection refused: nothing listens there; check host and port of the endpoint"),
    (("networkunreachable", "hostunreachable"), "there is no route to the host"),
    (("certificate", "unknownissuer", "notvalidforname"), "its certificate is not trusted (TLS)"),
    (("invalidcontenttype", "invalidmessage"), "the server does not speak TLS; use http:// instead of https://?"),
    (("handshakefailure", "alertreceived", "protocolversion"), "the TLS handshake failed"),
    (("kind: timeout", "timedout"), "timeout; timeout_seconds sets it"),
    (("parse(",), "the server does not speak HTTP; check the endpoint (https:// instead of http://?)"),
    (("connectionreset", "connectionaborted", "brokenpipe", "incompletemessage", "unexpectedeof"), "connection closed"),
)
"""Parts of obstore's messages and their meaning. obstore has no types or codes for failures of the network."""
_STATUS: Final = re.compile(r"status code: (\d{3})")  # obstore has the status and the code in its message only
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_RANGE: Final = re.compile(r"range (starting|was|that)|invalid range", re.IGNORECASE)
_PAUSES: Final = (0.05, 0.2, 0.8)
"""The seconds to wait before each further attempt."""
_process = 0
"""The process that sent the first request. The threads of obstore exist only in that process."""
_LIST_SIZE: Final = 1_000
_DELETE_SIZE: Final = 1_000


class ConditionFailed(Exception):
    """A conditional write was not done: the object has changed."""


class ObjectMissing(Exception):
    """The object does not exist. The text is its key."""


class NoAnswer(Exception):
    """The request failed, and the server may have carried it out. The text says how it failed."""

    def __init__(self, text: str, *, overloaded: bool = False) -> None:
        super().__init__(text)
        self.overloaded = overloaded


class FetchedObject(NamedTuple):
    """An object that was read, with its entity tag."""

    data: bytes
    tag: str


class ObjectInfo(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    modified: datetime


class Objects:
    """The objects below one prefix of a bucket. `requests` counts the requests by kind."""

    def __init__(self, store: "ObjectStore", prefix: str, name: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self.name = name
        """The store and its server for errors, without credentials."""
        self.requests: Counter[str] = Counter()

    def get(self, key: str, known: str | None = None) -> FetchedObject | None:
        """Return the object; None if it still has the tag `known`. Raises `ObjectMissing`."""
        import obstore
        from obstore.exceptions import NotModifiedError

        def read() -> FetchedObject | None:
            try:
                found = obstore.get(self._store, self._prefix + key, options={"if_none_match": known} if known else {})
                return FetchedObject(bytes(found.bytes()), found.meta["e_tag"] or "")
            except NotModifiedError:
                return None

        return self._retry("get", key, read)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop` of an object. Raises `ObjectMissing`."""
        import obstore

        return self._retry(
            "get", key, lambda: bytes(obstore.get_range(self._store, self._prefix + key, start=start, end=stop))
        )

    def put(self, key: str, data: bytes) -> None:
        """Write an object that no other writer uses, so that repeating the request is harmless."""
        import obstore

        self._retry("put", key, lambda: obstore.put(self._store, self._prefix + key, data, use_multipart=False))

    def has_versions(self, key: str) -> bool:
        """Write an empty object and remove it; return whether the bucket gave it a version."""
        import obstore

        path = self._prefix + key
        made = self._retry("put", key, lambda: obstore.put(self._store, path, b"", use_multipart=False))
        self.delete([key])
        return made.get("version") not in (None, "", "null")

    def create(self, key: str, data: bytes) -> str:
        """Write an object that must not exist and return its tag. One attempt.

        Raises `ConditionFailed` or `NoAnswer`.
        """
        return self._put_if(key, data, "create")

    def replace(self, key: str, data: bytes, tag: str) -> str:
        """Replace an object that must have this tag and return its new tag. Raises like `create`."""
        return self._put_if(key, data, {"e_tag": tag})

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, by key, after a given key. One request per thousand."""
        pages: Iterator[Any] | None = None

        def next_page() -> Any:
            """Return the next page. After a failure, start a new listing after the last object."""
            nonlocal pages
            current, pages = pages or self._pages(prefix, after), None
            found = next(current, None)
            pages = current
            return found

        while True:
            page = self._retry("list", prefix, next_page)
            for meta in page or ():
                after = meta["path"].removeprefix(self._prefix)
                yield ObjectInfo(after, meta["size"], meta["last_modified"])
            if page is None or len(page) < _LIST_SIZE:
                return

    def copy(self, key: str, target: str) -> None:
        """Copy an object on the server. Raises `ObjectMissing`."""
        import obstore

        self._retry("copy", key, lambda: obstore.copy(self._store, self._prefix + key, self._prefix + target))

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, a thousand per request. Objects that do not exist are ignored."""
        import obstore

        for start in range(0, len(keys), _DELETE_SIZE):
            batch = [self._prefix + key for key in keys[start : start + _DELETE_SIZE]]
            paths = batch[0] if len(batch) == 1 else batch
            with suppress(ObjectMissing):
                self._retry("delete", keys[start], partial(obstore.delete, self._store, paths))

    def failure(self, error: NoAnswer, key: str) -> QuireError:
        """Return the error for a request that failed in every attempt."""
        text = f"{self.name}: {error} at {key!r}."
        return Busy(f"{text} The server is overloaded: retry.") if error.overloaded else StorageFailure(text)

    def _put_if(self, key: str, data: bytes, mode: Any) -> str:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def write() -> str:
            try:
                result = obstore.put(self._store, self._prefix + key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                raise ConditionFailed from None
            return result["e_tag"] or ""

        try:
            return self._send("put", key, write)
        except ObjectMissing:  # some servers answer 404 if the object to replace is gone
            raise ConditionFailed from None

    def _pages(self, prefix: str, after: str) -> Iterator[Any]:
        import obstore

        offset = self._prefix + after if after else None
        return iter(obstore.list(self._store, prefix=self._prefix + prefix, offset=offset, chunk_size=_LIST_SIZE))

    def _retry(self, kind: str, key: str, action: Callable[[], T]) -> T:
        """Send a request that can be repeated, several times if necessary."""
        for pause in (*_PAUSES, None):
            try:
                return self._send(kind, key, action)
            except NoAnswer as error:
                if pause is None:
                    raise self.failure(error, key) from None
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _send(self, kind: str, key: str, action: Callable[[], T]) -> T:
        """Send one request and translate the errors of obstore."""
        from obstore.exceptions import BaseError

        _check_process(self.name)
        self.requests[kind] += 1
        try:
            return action()
        except ConditionFailed:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._translate(error, key) from None

    def _translate(self, error: Exception, key: str) -> Exception:
        text = str(error)
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        code = found[1] if (found := _CODE.search(text)) else ""
        if code == "NoSuchBucket":
            return StorageFailure(f"{self.name}: the bucket does not exist; create it, or check its name.")
        if isinstance(error, FileNotFoundError) or status == 404:
            return ObjectMissing(key)
        answer = f"{status} {code}".strip()
        if status == 416 or (not status and _RANGE.search(text)):
            return damaged(key, "its end cannot be read")
        if status in (401, 403):
            return StorageFailure(f"{self.name}: access to {key!r} was denied ({answer}); check the credentials.")
        if status in (301, 307, 400) or (404 < status < 500 and status not in (408, 409, 425, 429)):
            return StorageFailure(f"{self.name}: the server rejected {key!r} ({answer}); check endpoint and region.")
        if status:
            return NoAnswer(f"the server failed ({answer})", overloaded=status in (429, 503))
        if "credential" in text.lower():
            return StorageFailure(
                f"{self.name}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass"
                " access_key_id and secret_access_key."
            )
        message = text.lower()
        reasons = (reason for signs, reason in _REASONS if any(sign in message for sign in signs))
        reason = next(reasons, "the reason is unknown; check endpoint and network")
        return NoAnswer(f"the server could not be reached or did not answer ({reason})")


def _check_process(name: str) -> None:
    """Raise `StorageFailure` in a fork of a process that sent requests: a request would wait there for ever."""
    global _process
    process = os.getpid()
    _process = _process or process
    if _process != process:
        raise StorageFailure(
            f"{name}: process {process} is a fork of process {_process}, which uses S3 already; its client does not"
            " work here. Use the start method 'spawn' or 'forkserver' for processes, or use S3 only after the fork."
        )


def damaged(key: str, problem: str) -> Corrupt:
    """Return the error for an object that does not have the content that was written."""
    return Corrupt(f"The object {key!r} is damaged: {problem}. Restore it from a backup or a version.")


_checked: set[tuple[str, str]] = set()
_lock = Lock()


def check_conditional_writes(objects: Objects, endpoint: str, bucket: str) -> None:
    """Try conditional writes on a new object: five requests, once per process and bucket.

    A server that ignores conditions would lose commits silently. Raises `StorageFailure` if the server ignores a
    condition or rejects a write that meets it.
    """
    with _lock:
        if (endpoint, bucket) in _checked:
            return
        key = f"probes/{urandom(8).hex()}"
        try:
            _try_writes(objects, key)
        except NoAnswer as error:
            raise objects.failure(error, key) from None
        _checked.add((endpoint, bucket))


def _try_writes(objects: Objects, key: str) -> None:
    tag = objects.create(key, urandom(8))
    try:
        _require_refusal(objects, "If-None-Match", lambda: objects.create(key, urandom(8)))
        _require_refusal(objects, "If-Match", lambda: objects.replace(key, urandom(8), f'"{urandom(16).hex()}"'))
        try:
            objects.replace(key, urandom(8), tag)
        except ConditionFailed:
            raise StorageFailure(
                f"{objects.name}: the server rejects a write with a matching If-Match, so quire cannot commit there."
            ) from None
    finally:
        with suppress(QuireError):  # `collect` removes it later
            objects.delete([key])


def _require_refusal(objects: Objects, header: str, write: Callable[[], object]) -> None:
    try:
        write()
    except ConditionFailed:
        return
    raise StorageFailure(
        f"{objects.name}: the server ignores {header}, so two writers could overwrite each other."
        " Use a server with conditional writes (AWS S3, MinIO, SeaweedFS, Cloudflare R2, …)."
    )


_OPTIONS: Final = (*BUCKET_OPTIONS, "upkeep", "grace_seconds", "cache_bytes")


def parse_url(url: str) -> dict[str, Any]:
    """Return the arguments of `S3Storage` in a URL. Raises `InvalidValue`, which never quotes a credential."""
    found = parse_bucket(url, _OPTIONS)
    for name, kind in (("grace_seconds", float), ("cache_bytes", int)):
        if name in found:
            try:
                found[name] = kind(found[name])
            except ValueError:
                raise InvalidValue(f"is {short_repr(found[name])}; a number is needed.", argument=name) from None
    return found


def connect(
    bucket: str, prefix: str, endpoint: str, *, region: str | None, timeout_seconds: float, **options: Any
) -> Objects:
    """Return the objects of a bucket. Sends no request. `options` that are not None go to obstore.

    Raises `InvalidValue`, or `QuireError` without obstore.
    """
    check_place(bucket, prefix, endpoint, timeout_seconds)
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise NotInstalled("S3 needs obstore", "s3", name="obstore") from None
    name = place_name(bucket, prefix, endpoint, region)
    if _process:
        _check_process(name)
    options |= {"endpoint": endpoint or None, "region": region}
    timeout = timedelta(seconds=timeout_seconds)
    try:
        store = S3Store(
            bucket,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=5)),
            },
            retry_config={"max_retries": 0},  # quire decides what is repeated
            **{option: value for option, value in options.items() if value is not None},
        )
    except (BaseError, ValueError, TypeError):
        raise InvalidValue(f"{name}: endpoint, region and credentials do not fit together.") from None
    return Objects(store, prefix, name)
