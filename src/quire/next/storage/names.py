"""Which context has a name: pointers that are created only if absent, with numbers that only grow."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import blake2b
from os import urandom
from typing import Final

from msgspec import DecodeError
from msgspec.msgpack import Decoder

from quire.next.storage.blobs import Blob, Blobs
from quire.next.storage.contract import Id, conflict, name_taken
from quire.next.storage.frames import damaged, encode, framed, read_frames
from quire.storage.base import check_context_name
from quire.storage.paths import decode_file_name, file_name

NAMES: Final = "names/"
_decode: Final = Decoder(tuple[int, str, bytes]).decode


class Names:
    """The names of one store. The newest pointer of a name counts, unless its context was dropped."""

    def __init__(self, blobs: Blobs, is_alive: Callable[[Id], bool]) -> None:
        self._blobs = blobs
        self._is_alive = is_alive
        self._writer = urandom(8)

    def find(self, name: str) -> tuple[int, Id | None]:
        """Return the number of the newest pointer of a name, and the context that it leads to, if there is one."""
        newest = max(self._blobs.list(_folder_of(name)), default=None)
        if newest is None or _is_empty(newest):
            return _number_of(newest) if newest else 0, None
        try:
            context = self.target(newest)[0]
        except FileNotFoundError:  # it was removed just now
            return self.find(name)
        return _number_of(newest), context if self._is_alive(context) else None

    def next_number(self, name: str) -> int:
        """Return the number of the next pointer of a name. Raises `Conflict` if the name is taken."""
        number, context = self.find(name)
        if context is not None:
            raise name_taken(name)
        return number + 1

    def give(self, context: Id, name: str, number: int) -> None:
        """Create a pointer. Raises `Conflict` if another was first, or a sweep ended the context."""
        folder = _folder_of(name)
        pointer = f"{folder}{number:06}-{file_name(name)}"
        if not self._blobs.create(pointer, framed(encode((context, name, self._writer))), sync=True):
            raise name_taken(name)
        if not self._is_alive(context):
            self._remove(folder, number)
            raise conflict(None, 0)
        self._remove_older(folder, number)

    def remove(self, name: str, number: int) -> None:
        """Let a name lead nowhere. Its empty object remains for a day, so that the numbers only grow."""
        self._remove(_folder_of(name), number)

    def remove_pointer(self, pointer: Blob) -> None:
        """Do the same with a pointer."""
        self._remove(_parent(pointer), _number_of(pointer))

    def pointers(self) -> Iterator[Blob]:
        """Yield the newest pointer of each name that has one."""
        newest = {_parent(blob): blob for blob in self._blobs.list(NAMES)}
        return (blob for blob in newest.values() if not _is_empty(blob))

    def target(self, pointer: Blob) -> tuple[Id, str]:
        """Return the context and the name in a pointer. Raises `Corrupt` or `FileNotFoundError`."""
        for data, _ in read_frames(self._blobs.get(pointer.key), pointer.key):
            with suppress(DecodeError):
                return _decode(data)[:2]
        raise damaged(pointer.key)

    def all(self) -> Iterator[str]:
        """Yield the names of all contexts. Only a name that is too long for its key is read."""
        for pointer in self.pointers():
            with suppress(FileNotFoundError):  # it was dropped just now
                yield decode_file_name(pointer.key.rpartition("/")[2][7:]) or self.target(pointer)[1]

    def contexts(self) -> set[Id]:
        """Return the contexts that have a name."""
        found = set()
        for pointer in self.pointers():
            with suppress(FileNotFoundError):
                found.add(self.target(pointer)[0])
        return found

    def remove_older_than(self, moment: float) -> None:
        """Remove pointers that lead nowhere, or that a newer one replaced, if they are from before a moment."""
        blobs = list(self._blobs.list(NAMES))
        newest = set({_parent(blob): blob for blob in blobs}.values())
        old = [blob for blob in blobs if blob.modified < moment]
        self._blobs.delete([blob.key for blob in old if _is_empty(blob) or blob not in newest])

    def _remove(self, folder: str, number: int) -> None:
        self._blobs.create(f"{folder}{number + 1:06}", b"", sync=True)
        self._remove_older(folder, number + 1)

    def _remove_older(self, folder: str, number: int) -> None:
        self._blobs.delete([each.key for each in self._blobs.list(folder) if _number_of(each) < number])


def _is_empty(pointer: Blob) -> bool:
    """Return whether a name leads nowhere."""
    return pointer.key.rpartition("/")[2].isdigit()


def _folder_of(name: str) -> str:
    """Return where the pointers of a name are. What remains there when it was dropped does not tell the name."""
    return f"{NAMES}{blake2b(check_context_name(name).encode(), digest_size=12).hexdigest()}/"


def _parent(pointer: Blob) -> str:
    return f"{pointer.key.rpartition('/')[0]}/"


def _number_of(pointer: Blob) -> int:
    return int(pointer.key.rpartition("/")[2][:6])
