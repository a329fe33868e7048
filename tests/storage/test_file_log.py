"""The commit log: complete frames are read, torn tails are dropped, and damage before them is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import Corrupt
from quire.storage.base import FAMILIES, MAX_GROUP, MAX_KEY, PAGE, Commit, Delete, Patch, Put, Write
from quire.storage.file.frames import DELETE, PUT, Frame, encode_frame, read_frames

BASE = 31
KEYS = st.integers(0, MAX_KEY)
VALUES = st.binary(max_size=40) | st.just(b"\xffQL1" * 9)
GROUPS = st.none() | st.integers(0, MAX_GROUP)
WRITES = st.one_of(
    st.builds(Put, st.sampled_from(FAMILIES), KEYS, VALUES, GROUPS, st.binary(max_size=8)),
    st.builds(Patch, st.sampled_from(FAMILIES), KEYS, VALUES),
    st.builds(Delete, st.sampled_from(FAMILIES), KEYS),
)
COMMITS = st.builds(
    Commit, st.just(0), st.integers(-(1 << 40), 1 << 40), st.binary(max_size=40), st.lists(WRITES, max_size=5)
)


def log_of(commits: list[Commit]) -> tuple[bytes, list[int]]:
    """Return the commits as a log that begins at `BASE`, and the start of each frame."""
    data, starts = b"", []
    for commit in commits:
        starts.append(len(data))
        data += encode_frame(commit)
    return data, starts


def as_writes(frame: Frame, data: bytes) -> list[Write]:
    writes: list[Write] = []
    for entry in frame.entries:
        value = data[entry.offset - BASE : entry.offset - BASE + entry.size]
        if entry.kind == DELETE:
            writes.append(Delete(entry.family, entry.key))
        elif entry.kind == PUT:
            writes.append(Put(entry.family, entry.key, value, entry.group, entry.order))
        else:
            writes.append(Patch(entry.family, entry.key, value))
    return writes


def small_log(count: int = 4) -> tuple[bytes, list[int]]:
    commits = [Commit(n, n + 1, b"head %d" % n, [Put(PAGE, n, b"value %d" % n, 1, b"o")]) for n in range(count)]
    return log_of(commits)


@given(st.lists(COMMITS, max_size=4))
def test_what_is_written_is_read(commits: list[Commit]) -> None:
    data, starts = log_of(commits)
    frames = list(read_frames(data, BASE))
    assert [(frame.version, frame.head) for frame in frames] == [(commit.version, commit.head) for commit in commits]
    assert [as_writes(frame, data) for frame in frames] == [commit.writes for commit in commits]
    assert [frame.start for frame in frames] == [BASE + start for start in starts]
    assert [frame.end for frame in frames] == [BASE + end for end in [*starts[1:], len(data)]][: len(frames)]


def test_a_log_cut_anywhere_gives_its_whole_frames() -> None:
    data, starts = small_log()
    ends = [*starts[1:], len(data)]
    for cut in range(len(data) + 1):
        frames = list(read_frames(data[:cut], BASE))
        assert len(frames) == sum(end <= cut for end in ends), cut


def test_garbage_after_the_last_frame_is_a_torn_tail() -> None:
    data, starts = small_log()
    for tail in (b"\x00", bytes(5_000), b"\xffQL1", b"\xffQL1" * 50, data[starts[-1] : -1], b"{}" * 99):
        assert len(list(read_frames(data + tail, BASE))) == 4


def test_a_flipped_bit_in_the_last_frame_drops_that_frame() -> None:
    data, starts = small_log()
    for position in range(starts[-1], len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        assert [frame.version for frame in read_frames(bytes(damaged), BASE)] == [1, 2, 3], position


def test_a_flipped_bit_in_a_frame_that_was_on_disk_is_corrupt() -> None:
    data, starts = small_log()
    for position in range(starts[-1]):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        begin = BASE + max(start for start in starts if start <= position)
        with pytest.raises(Corrupt, match=f"byte {begin}"):
            list(read_frames(bytes(damaged), BASE))


def test_an_empty_stretch_has_no_frames() -> None:
    assert list(read_frames(b"", BASE)) == []
