"""What SQLite's write-ahead log holds after a damaged frame. SQLite itself ends there, without a word."""

from pathlib import Path
from struct import iter_unpack

import apsw

_HEADER, _FRAME = 32, 24
_MASK = 0xFFFFFFFF


def has_lost_commits(db: apsw.Connection) -> bool:
    """Return whether the log has a whole commit after the last frame that SQLite reads. `db` has read the file.

    A process that dies leaves at most the beginning of one commit. Power loss and damage of the disk can leave more. A
    commit that another process makes at this moment looks the same.
    """
    path = Path(db.filename_wal)
    if not path.exists() or path.stat().st_size <= _HEADER:
        return False
    frames = max(db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0], 0)
    with path.open("rb") as log:
        header = log.read(_HEADER)
        size = _FRAME + int.from_bytes(header[8:12])
        order, salts = ">" if header[3] & 1 else "<", header[16:24]
        log.seek(_HEADER + frames * size)
        before = log.read(size)  # the first frame that is not read
        while len(frame := log.read(size)) == size:
            is_commit = any(frame[4:8]) and frame[8:16] == salts
            if is_commit and _checksum(frame, before[16:24], order) == frame[16:24]:
                return True
            before = frame
    return False


def _checksum(frame: bytes, before: bytes, order: str) -> bytes:
    """Return the checksum of a frame, which continues that of the frame before."""
    first, second = int.from_bytes(before[:4]), int.from_bytes(before[4:])
    for one, two in iter_unpack(f"{order}II", frame[:8] + frame[_FRAME:]):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first.to_bytes(4) + second.to_bytes(4)
