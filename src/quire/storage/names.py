"""Which context has a name: pointers that are created only if absent, with numbers that only grow."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from os import urandom
from typing import Final

from msgspec.msgpack import Decoder

from quire.storage.base import check_context_name
from quire.storage.blobs import Blob, Blobs
from quire.storage.contract import Id, name_taken
from quire.storage.frames import framed, read_frames
from quire.storage.paths import decode_file_name, file_name

NAMES: Final = "names/"
_POINTER: Final = Decoder(tuple[int, str, bytes])


class Names:
    """The names of one store. The newest pointer of a name counts; it is empty if the name leads nowhere."""

    def __init__(self, blobs: Blobs, is_alive: Callable[[Id], bool]) -> None:
        self._blobs = blobs
        self._is_alive = is_alive

    def find(self, name: str) -> tuple[Blob | None, Id | None]:
        """Return the newest pointer of a name, and the context that it leads to, if there is one."""
        newest = max(self._blobs.list(_folder_of(name)), default=None)
        if newest is None or not newest.size:
            return newest, None
        try:
            context = self.target(newest)[0]
        except FileNotFoundError:  # it was removed just now
            return self.find(name)
        return newest, context if self._is_alive(context) else None

    def next_number(self, name: str) -> int:
        """Return the number of the next pointer of a name. Raises `Conflict` if the name is taken."""
        newest, context = self.find(name)
        if context is not None:
            raise name_taken(name)
        return _number_of(newest) + 1 if newest else 1

    def give(self, context: Id, name: str, number: int) -> None:
        """Create a pointer. Raises `Conflict` if another was first."""
        folder = _folder_of(name)
        pointer = f"{folder}{number:06}-{file_name(name)}"
        if not self._blobs.create(pointer, framed((context, name, urandom(8))), sync=True):
            raise name_taken(name)
        if self._remove_older(folder, number) > number:  # the name was given and removed meanwhile
            self._blobs.delete([pointer])
            raise name_taken(name)

    def remove(self, pointer: Blob) -> None:
        """Let a name lead nowhere. Its empty object remains for a day, so that the numbers only grow."""
        folder, number = _parent(pointer), _number_of(pointer) + 1
        self._blobs.create(f"{folder}{number:06}", b"", sync=True)
        self._remove_older(folder, number)

    def pointers(self) -> Iterator[Blob]:
        """Yield the newest pointer of each name that leads anywhere."""
        newest = {_parent(blob): blob for blob in self._blobs.list(NAMES)}
        return (blob for blob in newest.values() if blob.size)

    def target(self, pointer: Blob) -> tuple[Id, str]:
        """Return the context and the name in a pointer. Raises `Corrupt` or `FileNotFoundError`."""
        return next(read_frames(self._blobs.get(pointer.key), pointer.key, _POINTER))[0][:2]

    def targets(self) -> Iterator[tuple[Blob, Id]]:
        """Yield all pointers and the contexts that they lead to."""
        for pointer in self.pointers():
            with suppress(FileNotFoundError):  # it was removed just now
                yield pointer, self.target(pointer)[0]

    def all(self) -> Iterator[str]:
        """Yield the names of all contexts. Only a name that is too long for its key is read."""
        for pointer in self.pointers():
            with suppress(FileNotFoundError):
                yield decode_file_name(pointer.key.rpartition("/")[2][7:]) or self.target(pointer)[1]

    def remove_empty(self, before: float) -> None:
        """Remove what remains of names that were removed before a moment."""
        old = [blob for blob in self._blobs.list(NAMES) if not blob.size and blob.modified < before]
        self._blobs.delete([blob.key for blob in old])

    def _remove_older(self, folder: str, number: int) -> int:
        """Remove the pointers with smaller numbers. Return the largest number."""
        blobs = list(self._blobs.list(folder))
        self._blobs.delete([blob.key for blob in blobs if _number_of(blob) < number])
        return max(map(_number_of, blobs), default=number)


def _folder_of(name: str) -> str:
    """Return where the pointers of a name are. What remains there when it was dropped does not tell the name."""
    return f"{NAMES}{blake2b(check_context_name(name).encode(), digest_size=12).hexdigest()}/"


def _parent(pointer: Blob) -> str:
    return f"{pointer.key.rpartition('/')[0]}/"


def _number_of(pointer: Blob) -> int:
    return int(pointer.key.rpartition("/")[2][:6])
