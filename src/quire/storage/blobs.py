"""Where the log storage keeps its objects: a folder, or any object store that `obstore` can reach.

Both have the same four calls. The only promise between writers is `create`: it writes a whole object that is not there.
Errors contain only the status and the code of an answer: the other parts of an answer may quote keys and signatures.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EACCES, EPERM, EROFS
from itertools import count
from pathlib import Path
from stat import S_ISDIR
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from quire.errors import Busy, NotInstalled, OutcomeUnknown, QuireError, ReadOnly, StorageFailure
from quire.storage.base import Durability, NothingWritten, check_durability
from quire.storage.paths import check_path

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")
_UNWRITABLE: Final = (EROFS, EACCES, EPERM)
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
    repeats: int
    """How many bytes of earlier commits a commit repeats, so that opening a context reads few objects."""
    stale: float
    """So many seconds old may be what is read without a load before."""
    tears: bool
    """Whether power loss can damage the newest objects that were created without `sync`."""
    versions: bool
    """Whether the store keeps deleted objects as versions."""

    def get(self, key: str) -> bytes:
        """Return an object. Raises `FileNotFoundError`."""

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Write an object, whole or not at all. Return False if it exists. With `sync` it survives power loss."""

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        """Yield the objects below a prefix, which is empty or ends with "/", beyond a key; by key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. A missing one is ignored."""


class Folder:
    """Objects as files below a folder. `durability="full"` writes every object to disk before it counts."""

    repeats, stale, versions = 0, 0.0, False

    def __init__(self, path: str | os.PathLike[str], durability: Durability = "normal") -> None:
        self.path: Path = check_path(path)
        self.name = str(self.path)
        self.tears = check_durability(durability) == "normal"
        self._root = f"{self.path.absolute()}/"
        self._fresh = f"{self._root}{TEMPORARY}{os.urandom(6).hex()}"
        self._numbers = count()
        with self._errors():
            try:
                if not self.path.exists():
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    self.path.mkdir(0o700, exist_ok=True)
                os.listdir(self.path)
            except (FileExistsError, NotADirectoryError) as error:
                raise StorageFailure(f"Cannot open {self.name!r}: a folder is needed, not a file.") from error

    def get(self, key: str) -> bytes:
        with self._errors(), open(self._root + key, "rb", buffering=0) as file:
            return file.read()

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        fresh, path = f"{self._fresh}-{os.getpid()}-{next(self._numbers)}", self._root + key
        sync = sync or not self.tears
        with self._errors():
            try:
                self._in_folder(fresh, lambda: write_private(fresh, data))
            except OSError as error:
                with suppress(OSError):
                    os.unlink(fresh)
                if error.errno in _UNWRITABLE:
                    raise
                raise NothingWritten(f"{self.name!r}: {error}.") from error
            try:
                if sync:
                    sync_path(fresh)
                self._in_folder(path, lambda: os.link(fresh, path))
            except FileExistsError:
                return False
            finally:
                os.unlink(fresh)
            while sync and len(path) > len(self._root):
                path = os.path.dirname(path)
                sync_path(path)
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

    def delete(self, keys: Sequence[str]) -> None:
        """Remove files, and folders that are empty then."""
        with self._errors():
            for key in keys:
                with suppress(FileNotFoundError):
                    os.unlink(self._root + key)
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
            if error.errno in _UNWRITABLE:
                raise ReadOnly(f"{self.name!r} cannot be written to or read: {error}.") from error
            raise StorageFailure(f"{self.name!r}: {error}.") from error

    def _in_folder(self, path: str, action: Callable[[], None]) -> None:
        """Create a file; first its folders if they are missing."""
        for _ in range(9):  # another writer may remove a folder because it is empty
            with suppress(FileNotFoundError):
                return action()
            for end in (at for at in range(len(self._root), len(path)) if path[at] == "/"):
                with suppress(FileExistsError, FileNotFoundError):
                    os.mkdir(path[:end], 0o700)
        raise Busy(f"{self.name!r}: the folder of {path!r} is removed again and again. Retry.")


def write_private(path: str, data: bytes) -> None:
    """Write a file that only its owner can read."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)


def sync_path(path: str | os.PathLike[str]) -> None:
    """Write a file, or the names in a folder, to disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


_STATUS: Final = re.compile(r"status code: (\d{3})")  # obstore has the status and the code in its message only
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_PAGE: Final = 1_000
"""The most objects in one answer, and in one request to remove some."""
_PAUSES: Final = (0.05, 0.2, 0.8)
"""The seconds to wait before each further attempt."""
_user = 0
"""The process that sent the first request. The threads of obstore exist only there."""


class Bucket:
    """Objects below a prefix of an object store, which must have conditional writes. `store` is one of `obstore`.

    What another process changed is seen at once by `load`, and after `stale` seconds by other reads.
    """

    repeats, tears = 8_192, False

    def __init__(self, store: "ObjectStore", prefix: str = "", *, name: str = "", stale: float = 1.0) -> None:
        try:
            import obstore
        except ImportError:
            raise NotInstalled("Object stores need obstore", "s3", name="obstore") from None
        self._driver, self._store = obstore, store
        self._prefix = f"{prefix.strip('/')}/".lstrip("/")
        self.name = name or f"{type(store).__name__} {prefix}".rstrip()
        self.stale, self.versions = stale, False
        if _user:
            self._check_process()

    def get(self, key: str) -> bytes:
        return self._send(key, lambda: bytes(self._driver.get(self._store, self._prefix + key).bytes()))

    def create(self, key: str, data: bytes, *, sync: bool = False) -> bool:
        """Create an object. One that exists may be ours: an answer was lost, and the request was repeated."""
        from obstore.exceptions import AlreadyExistsError

        def put() -> bool:
            try:
                made = self._driver.put(self._store, self._prefix + key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            self.versions |= made.get("version") not in (None, "", "null")
            return True

        with suppress(FileNotFoundError):
            return self._send(key, put, unsure=OutcomeUnknown) or self.get(key) == data
        return False

    def list(self, prefix: str, after: str = "") -> Iterator[Blob]:
        top = (self._prefix + prefix).rstrip("/") or None

        def read_page() -> Any:
            offset = self._prefix + after if after else None
            return next(iter(self._driver.list(self._store, prefix=top, offset=offset, chunk_size=_PAGE)), ())

        while True:
            try:
                found = self._send(prefix, read_page)
            except FileNotFoundError:  # a few servers say that of a prefix without objects
                return
            for meta in found:
                after = meta["path"].removeprefix(self._prefix)
                yield Blob(after, meta["size"], meta["last_modified"].timestamp())
            if len(found) < _PAGE:
                return

    def delete(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + key for key in keys]
        for start in range(0, len(paths), _PAGE):
            with suppress(FileNotFoundError):
                self._send(paths[start], lambda: self._driver.delete(self._store, paths[start : start + _PAGE]))  # noqa: B023

    def check_conditions(self) -> None:
        """Try conditional writes on a new object: a server that ignores the condition would lose commits silently."""
        key = f"{TEMPORARY}{os.urandom(8).hex()}"
        self.create(key, b"1")
        try:
            if self.create(key, b"2"):
                raise StorageFailure(
                    f"{self.name}: the server ignores If-None-Match, so two writers could overwrite each other."
                    " Use a server with conditional writes (AWS S3, MinIO, SeaweedFS, Cloudflare R2, …)."
                )
        finally:
            with suppress(QuireError):  # a scrub removes it later
                self.delete([key])

    def _send(self, key: str, action: Callable[[], T], *, unsure: type[QuireError] = StorageFailure) -> T:
        """Send a request, several times if there is no answer. Raises `FileNotFoundError` if nothing has this key."""
        from obstore.exceptions import BaseError

        self._check_process()
        is_overloaded = True
        for pause in (*_PAUSES, None):
            try:
                return action()
            except (BaseError, OSError, ValueError) as error:
                problem, status = self._problem(error, key)
            is_overloaded = is_overloaded and status in (429, 503)
            if pause is not None:
                sleep(pause)
        raise (Busy if is_overloaded else unsure)(problem)

    def _problem(self, error: Exception, key: str) -> tuple[str, int]:
        """Return what an error without an answer means, and its status. Raises if the server refused the request."""
        text, where = str(error), f"{self.name}, at {key!r}"
        status = int(found[1]) if (found := _STATUS.search(text)) else 0
        code = found[1] if (found := _CODE.search(text)) else ""
        if code == "NoSuchBucket":
            raise StorageFailure(f"{self.name}: the bucket does not exist; create it, or check its name.") from None
        if isinstance(error, FileNotFoundError) or status == 404:
            raise FileNotFoundError(key) from None
        if status in (401, 403) or "credential" in text.lower():
            advice = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise StorageFailure(f"{where}: access was denied ({status or 'no credentials'}); {advice}.") from None
        if 300 <= status < 500 and status not in (408, 409, 425, 429):
            answer = f"{status} {code}".strip()
            raise StorageFailure(f"{where}: the server rejected it ({answer}); check endpoint and region.") from None
        answer = f"the server failed ({status} {code}".strip() + ")" if status else "the server did not answer"
        return f"{where}: {answer}; check endpoint, network and TLS, and retry.", status

    def _check_process(self) -> None:
        """Raise `StorageFailure` in a fork of a process that sent requests: a request would wait there for ever."""
        global _user
        _user = _user or os.getpid()
        if _user != os.getpid():
            raise StorageFailure(
                f"{self.name}: process {os.getpid()} is a fork of one that uses the object store; its client does not"
                " work here. Use the start method 'spawn' or 'forkserver', or open the store only after the fork."
            )
