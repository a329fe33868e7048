"""The head object of a context: where it stands, its last commits, and which runs lie below them.

A head is replaced as a whole, under the condition that it is still the one that was read. Its revision is unique: two
heads never have the same bytes, so a tag that a server makes of the bytes never comes back.
"""

from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from quire.errors import NewerFormat
from quire.storage.base import Head
from quire.storage.s3.chunks import Run
from quire.storage.s3.client import damaged

FORMAT: Final = 1
_TITLE: Final = b"quire head\n"
ID_BYTES: Final = 8
REMEMBERED: Final = 1_000
"""So many commits can be told by their ids."""


class HeadObject(Struct, frozen=True, array_like=True):
    """All of a head. `log` holds the newest commits as frames, `runs` what is older, the oldest first."""

    context: str
    incarnation: str
    """Which making of the context this is: one that is dropped and made again is another."""
    version: int
    value: bytes
    revisions: bytes
    """The ids of the last commits, the newest last."""
    log: bytes
    runs: tuple[Run, ...]
    seals: int
    """How often something was sealed: chunks are named by it."""
    turn: int = 0
    """How often this head was written: which of two is newer."""
    fence: int = 0
    """A compaction that began at fewer seals came too late: what it wrote may be gone."""

    @property
    def head(self) -> Head:
        return Head(self.version, self.value)

    def knows(self, revision: bytes) -> bool:
        """Whether this commit is among the last ones."""
        ids = self.revisions
        return any(ids[at : at + ID_BYTES] == revision for at in range(0, len(ids), ID_BYTES))

    def revisions_with(self, revision: bytes) -> bytes:
        """The ids of the last commits with a new one."""
        return (self.revisions + revision)[-ID_BYTES * REMEMBERED :]

    def ids(self) -> set[str]:
        """The ids of all chunks it needs."""
        return {chunk.id for run in self.runs for chunk in run.chunks}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(HeadObject).decode
_decode_any = msgspec.msgpack.Decoder(tuple[int, str, int, bytes]).decode


def encode_head(head: HeadObject) -> bytes:
    """The head as bytes."""
    body = _encode(head)
    return _TITLE + _encode((FORMAT, _writer(), crc32(body), body))


def decode_head(data: bytes, key: str, context: str) -> HeadObject:
    """The head in these bytes. Raises `Corrupt` with the object's key, or `NewerFormat`."""
    try:
        if not data.startswith(_TITLE):
            raise damaged(key, "its beginning")
        format_, writer, checksum, body = _decode_any(data[len(_TITLE) :])
    except msgspec.MsgspecError:
        raise damaged(key, "its frame") from None
    if format_ > FORMAT:
        raise NewerFormat(
            f"The object {key!r} has format {format_}; this quire reads up to {FORMAT}."
            f" Install quire {writer} or newer."
        )
    if crc32(body) != checksum:
        raise damaged(key, "its content")
    try:
        found = _decode(body)
    except msgspec.MsgspecError:
        raise damaged(key, "its content") from None
    if found.context != context:
        raise damaged(key, f"it belongs to context {found.context!r}, its name")
    return found


def _writer() -> str:
    """The version of quire that writes this."""
    from importlib.metadata import PackageNotFoundError, version

    global _version
    if _version is None:
        try:
            _version = version("quire")
        except PackageNotFoundError:  # pragma: no cover - run from a folder that is not installed
            _version = "0"
    return _version


_version: str | None = None
