"""The seam to the server: a few calls on objects, each one request a try, with errors that say what is known after.

Nothing that a server or client said goes into an error but its status and code: the rest may quote keys and signatures.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from quire.errors import Busy, Corrupt, QuireError, StorageFailure
from quire.storage.s3.reasons import reason

if TYPE_CHECKING:
    from obstore.store import ObjectStore

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
