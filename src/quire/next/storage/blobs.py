"""Where the log storage keeps its objects: a folder, or any object store that `obstore` can reach.

Both have the same few calls. The only promise between writers is `create`: it writes a whole object that did not exist.
Errors contain only the status and the code of an answer: the other parts of an answer may quote keys and signatures.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, ENOSYS, ENOTSUP, EPERM, EROFS
from functools import partial
from itertools import count
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from quire.errors import Busy, NotInstalled, OutcomeUnknown, QuireError, ReadOnly, StorageFailure
from quire.storage.base import Durability, check_durability
from quire.storage.paths import check_path, make_private

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
TEMPORARY: Final = "new/"
"""What is below this prefix was left by a writer that died."""


class Blob(NamedTuple):
    """An object in a listing. `modified` is a time of the store's own clock, in seconds."""

    key: str
    size: int
    modified: float


class Blobs(Protocol):
    """The objects of one store, by key. The errors of the driver leave it as errors of quire."""

    name: str
    """The address without its secrets, for errors."""
    grace: float
    """For so many seconds the number of a commit stays taken after a pack replaced it. 0 if listing is cheap."""
    repeats: int
    """How many bytes of earlier commits a commit repeats, so that opening a context reads few objects."""
    stale: float
    """So many seconds old may be what is read without a load before."""
    tears: bool
    """Whether power loss can damage the newest objects that were created without `sync`."""
    versions: bool
    """Whether the store keeps deleted objects as versions."""

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        """Return an object or a part of it. Raises `FileNotFoundError`."""

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Write an object, whole or not at all. Return False if it exists. With `sync` it survives power loss."""

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        """Yield the objects below a prefix, which is empty or ends with "/", beyond a key; by key."""

    def delete(self, keys: Sequence[str], *, empty: bool = False) -> None:
        """Remove objects; with `empty`, only their bytes. A missing one is ignored."""


class Folder:
    """Objects as files below a folder. `durability="full"` writes every object to disk before it counts."""

    grace, repeats, stale, versions = 0.0, 0, 0.0, False

    def __init__(self, path: str | os.PathLike[str], durability: Durability = "normal") -> None:
        self.path: Path = check_path(path)
        self.name = str(self.path)
        self.tears = check_durability(durability) == "normal"
        self._root = f"{self.path.absolute()}/"
        self._fresh = f"{self._root}{TEMPORARY}{os.urandom(6).hex()}"
        self._numbers = count()
        with self._errors():
            try:
                make_private(self.path, folder=True)
                os.listdir(self.path)
            except (FileExistsError, NotADirectoryError) as error:
                raise StorageFailure(f"Cannot open {self.name!r}: a folder is needed, not a file.") from error

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        with self._errors():
            file = os.open(self._root + key, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = (os.fstat(file).st_size if stop is None else stop) - start
                return os.pread(file, size, start)
            finally:
                os.close(file)

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        sync = sync or not self.tears
        fresh, path = f"{self._fresh}-{os.getpid()}-{next(self._numbers)}", self._root + key
        with self._errors():
            is_new_folder = self._in_folder(fresh, lambda: _write(fresh, data, sync=sync))
            try:
                is_new_folder = self._in_folder(path, lambda: _link(fresh, path, data, sync=sync))
            except FileExistsError:
                return False
            finally:
                os.unlink(fresh)
            if sync:
                self._sync_folders(path, upwards=is_new_folder)
        return True

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        for key, found in self._in(prefix, after):
            if S_ISDIR(found.st_mode):
                yield from self.list(f"{key}/", after)
            else:
                yield Blob(key, found.st_size, found.st_mtime)

    def _in(self, prefix: str, after: str) -> Sequence[tuple[str, os.stat_result]]:
        """Return what is in one folder. If a file vanishes meanwhile, another may be there instead: look again."""
        with self._errors():
            while True:
                try:
                    keys = sorted(key for name in os.listdir(self._root + prefix) if (key := prefix + name) > after)
                except (FileNotFoundError, NotADirectoryError):
                    return []
                with suppress(FileNotFoundError):
                    return [(key, os.stat(self._root + key)) for key in keys]

    def delete(self, keys: Sequence[str], *, empty: bool = False) -> None:
        """Remove files, and folders that are empty then."""
        with self._errors():
            for key in keys:
                with suppress(FileNotFoundError):
                    os.truncate(self._root + key, 0) if empty else os.unlink(self._root + key)
            for folder in {os.path.dirname(key) for key in keys}:
                with suppress(OSError):  # one is not empty
                    while folder:
                        os.rmdir(self._root + folder)
                        folder = os.path.dirname(folder)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the system into those of quire. `FileNotFoundError` and `FileExistsError` are answers."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if error.errno in (EROFS, EACCES, EPERM):
                raise ReadOnly(f"{self.name!r} cannot be written to or read: {error}.") from error
            raise StorageFailure(f"{self.name!r}: {error}.") from error

    def _in_folder(self, path: str, action: Callable[[], None]) -> bool:
        """Create a file; first its folder if that is missing. Return whether it was."""
        for _ in range(9):  # another writer may remove the folder because it is empty
            try:
                action()
                return False
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    self._make_folder(os.path.dirname(path))
                    action()
                    return True
        raise Busy(f"{self.name!r}: the folder of {path!r} is removed again and again. Retry.")

    def _make_folder(self, path: str) -> None:
        if len(path) > len(self._root):
            self._make_folder(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)

    def _sync_folders(self, path: str, *, upwards: bool) -> None:
        """Write the name of a file to disk, with `upwards` those of its folders too."""
        while len(path) > len(self._root):
            path = os.path.dirname(path)
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)
            if not upwards:
                return


def _write(path: str, data: bytes, *, sync: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def _link(fresh: str, path: str, data: bytes, *, sync: bool) -> None:
    """Give a file its name. Where the file system has no links, write it there: readers may meet a part of it."""
    try:
        os.link(fresh, path)
    except OSError as error:
        if error.errno not in (EPERM, ENOSYS, ENOTSUP):
            raise
        _write(path, data, sync=sync)


_REASONS: Final = (
    (("dns error", "lookup address", "name or service not known"), "no such host (DNS); check the endpoint"),
    (("connectionrefused",), "connection refused: nothing listens there; check host and port of the endpoint"),
    (("networkunreachable", "hostunreachable"), "there is no route to the host"),
    (("certificate", "unknownissuer", "notvalidforname"), "its certificate is not trusted (TLS)"),
    (("invalidcontenttype", "invalidmessage"), "the server does not speak TLS; use http:// instead of https://?"),
    (("handshakefailure", "alertreceived", "protocolversion"), "the TLS handshake failed"),
    (("kind: timeout", "timedout"), "timeout"),
    (("parse(",), "the server does not speak HTTP; check the endpoint (https:// instead of http://?)"),
    (("connectionreset", "connectionaborted", "brokenpipe", "incompletemessage", "unexpectedeof"), "connection closed"),
)
"""Parts of obstore's messages and their meaning. obstore has no types or codes for failures of the network."""
_STATUS: Final = re.compile(r"status code: (\d{3})")  # obstore has the status and the code in its message only
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_PAUSES: Final = (0.05, 0.2, 0.8)
"""The seconds to wait before each further attempt."""
_DELETE_SIZE: Final = 1_000


class Bucket:
    """Objects below a prefix of an object store, which must have conditional writes. `store` is one of `obstore`.

    What another process changed is seen at once by `load`, and after `stale` seconds by other reads.
    """

    repeats, tears = 8_192, False

    def __init__(
        self, store: "ObjectStore", prefix: str = "", *, name: str = "", grace: float = 120.0, stale: float = 1.0
    ) -> None:
        try:
            import obstore
        except ImportError:
            raise NotInstalled("Object stores need obstore", "s3", name="obstore") from None
        self._driver, self._store = obstore, store
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        self.name = name or f"{type(store).__name__} {prefix}".rstrip()
        self.grace, self.stale, self.versions = grace, stale, False
        self._process = os.getpid()
        self._is_checked = False

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        path = self._prefix + key
        if stop is None:
            return self._send(key, lambda: bytes(self._driver.get(self._store, path).bytes()))
        return self._send(key, lambda: bytes(self._driver.get_range(self._store, path, start=start, end=stop)))

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        if not self._is_checked:
            self._check_conditions()
        return self._create(key, data)

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        top, offset = (self._prefix + prefix).rstrip("/"), self._prefix + after if after else None

        def read() -> list[Blob]:
            parts = self._driver.list(self._store, prefix=top or None, offset=offset, chunk_size=1_000)
            found = (
                Blob(meta["path"], meta["size"], meta["last_modified"].timestamp()) for part in parts for meta in part
            )
            return sorted(blob._replace(key=blob.key.removeprefix(self._prefix)) for blob in found)

        for _ in _PAUSES:
            with suppress(FileNotFoundError):  # a folder as a store: an object was removed meanwhile
                return iter(self._send(prefix, read))
        return iter(())

    def delete(self, keys: Sequence[str], *, empty: bool = False) -> None:
        paths = [self._prefix + key for key in keys]
        for start in range(0, len(paths), 1 if empty else _DELETE_SIZE):
            batch = paths[start : start + (1 if empty else _DELETE_SIZE)]
            if empty:
                self._send(batch[0], partial(self._driver.put, self._store, batch[0], b"", use_multipart=False))
                continue
            try:
                self._send(batch[0], partial(self._driver.delete, self._store, batch))
            except FileNotFoundError:  # some stores report a missing object and leave the others
                for path in batch:
                    with suppress(FileNotFoundError):
                        self._send(path, partial(self._driver.delete, self._store, path))

    def _create(self, key: str, data: bytes) -> bool:
        """Create an object. One that exists may be ours: an answer was lost, and the request was repeated."""
        from obstore.exceptions import AlreadyExistsError

        path = self._prefix + key
        try:
            made = self._send(
                key,
                lambda: self._driver.put(self._store, path, data, mode="create", use_multipart=False),
                passed=AlreadyExistsError,
                unsure=OutcomeUnknown,
            )
        except AlreadyExistsError:
            with suppress(FileNotFoundError):
                return self.get(key) == data
            return False
        self.versions |= made.get("version") not in (None, "", "null")
        return True

    def _check_conditions(self) -> None:
        """Try conditional writes on a new object: a server that ignores the condition would lose commits silently."""
        key = f"{TEMPORARY}{os.urandom(8).hex()}"
        self._create(key, b"1")
        try:
            if self._create(key, b"2"):
                raise StorageFailure(
                    f"{self.name}: the server ignores If-None-Match, so two writers could overwrite each other."
                    " Use a server with conditional writes (AWS S3, MinIO, SeaweedFS, Cloudflare R2, …)."
                )
        finally:
            with suppress(QuireError):  # a scrub removes it later
                self.delete([key])
        self._is_checked = True

    def _send(
        self,
        key: str,
        action: Callable[[], T],
        *,
        passed: type[Exception] = FileNotFoundError,
        unsure: type[QuireError] = StorageFailure,
    ) -> T:
        """Send a request, several times if there is no answer. `passed` is an error that the caller handles."""
        from obstore.exceptions import BaseError

        if os.getpid() != self._process:
            raise StorageFailure(
                f"{self.name}: this process is a fork of the one that opened it; the client does not work here. Use the"
                " start method 'spawn' or 'forkserver' for processes, or open the storage after the fork."
            )
        is_overloaded = True
        for pause in (*_PAUSES, None):
            try:
                return action()
            except passed:
                raise
            except (BaseError, OSError, ValueError) as error:
                fact, status = self._explain(error, key)
                is_overloaded = is_overloaded and status in (429, 503)
                if pause is None:
                    text = f"{self.name}: {fact} at {key!r}."
                    raise (Busy(f"{text} Retry.") if is_overloaded else unsure(text)) from None
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _explain(self, error: Exception, key: str) -> tuple[str, int]:
        """Return what an error without an answer means, and its status. Raises if the server refused the request."""
        text = str(error)
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        code = found[1] if (found := _CODE.search(text)) else ""
        if code == "NoSuchBucket":
            raise StorageFailure(f"{self.name}: the bucket does not exist; create it, or check its name.") from None
        if isinstance(error, FileNotFoundError) or status == 404:
            raise FileNotFoundError(key) from None
        answer = f"{status} {code}".strip()
        if status in (401, 403):
            raise StorageFailure(
                f"{self.name}: access to {key!r} was denied ({answer}); check the credentials."
            ) from None
        if status in (301, 307, 400) or (404 < status < 500 and status not in (408, 409, 425, 429)):
            raise StorageFailure(
                f"{self.name}: the server rejected {key!r} ({answer}); check endpoint and region."
            ) from None
        if status:
            return f"the server failed ({answer})", status
        message = text.lower()
        if "credential" in message:
            raise StorageFailure(
                f"{self.name}: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from None
        reasons = (reason for signs, reason in _REASONS if any(sign in message for sign in signs))
        reason = next(reasons, "the reason is unknown; check endpoint and network")
        return f"the server could not be reached or did not answer ({reason})", 0
