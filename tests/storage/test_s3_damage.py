"""Damaged objects are reported by name and never skipped."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import quire
from quire import Conflict, Corrupt, Library, QuireError
from quire.errors import NewerFormat
from quire.storage.base import BODY, JOURNAL, Put
from quire.storage.s3 import head as heads
from quire.storage.s3.head import key_of
from quire.testing.case import contents, write
from tests.storage.s3_engine import CountingObjects, objects, open_engine, tiny
from tests.talks import full_talk

__all__ = ["objects", "tiny"]
Change = Callable[[bytes], bytes]
CHANGES: dict[str, Change] = {
    "a bit at the front": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "a bit in the middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 8]) + data[len(data) // 2 + 1 :]
    ),
    "a bit at the end": lambda data: data[:-1] + bytes([data[-1] ^ 128]),
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


def filled(objects: CountingObjects) -> str:
    """Make a context with a head, a log and chunks. Return the key of its head."""
    storage = open_engine(objects)
    write(storage, "书", *(Put(BODY, key, b"%d" % key * 60) for key in range(9)))
    write(storage, "书", Put(JOURNAL, 1, b"x"))
    return objects.keys("heads")[0]


def spoil(objects: CountingObjects, key: str, change: Change) -> bool:
    """Change an object. Return False if its bytes stay the same."""
    found = objects.get(key)
    assert found is not None
    objects.put(key, change(found.data))
    return change(found.data) != found.data


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("what", CHANGES)
def test_a_damaged_head_is_named(objects: CountingObjects, what: str) -> None:
    key = filled(objects)
    assert spoil(objects, key, CHANGES[what])
    with pytest.raises(Corrupt) as error:
        open_engine(objects.in_another_process()).head("书")
    assert key in str(error.value)
    assert error.value.code == "corrupt"


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("what", CHANGES)
def test_a_damaged_chunk_is_named(objects: CountingObjects, what: str) -> None:
    filled(objects)
    storage = open_engine(objects.in_another_process())
    before = contents(storage, "书")
    for key in objects.keys():  # noqa: SIM118 - not a mapping
        found = objects.get(key)
        assert found is not None
        assert spoil(objects, key, CHANGES[what])
        if what == "a bit at the front":  # in the title, which is not read
            assert contents(open_engine(objects.in_another_process()), "书") == before
        else:
            with pytest.raises(Corrupt) as error:
                contents(open_engine(objects.in_another_process()), "书")
            assert key in str(error.value)
        objects.put(key, found.data)
    assert contents(open_engine(objects.in_another_process()), "书") == before


@pytest.mark.usefixtures("tiny")
def test_a_missing_chunk_is_named(objects: CountingObjects) -> None:
    filled(objects)
    storage = open_engine(objects.in_another_process())
    storage.head("书")
    lost = objects.keys()[0]
    objects.delete([lost])
    for read in (lambda: storage.get("书", BODY, 0), lambda: list(storage.scan("书", BODY))):
        with pytest.raises(Corrupt, match="missing") as error:
            read()
        assert lost in str(error.value)


def test_a_head_under_another_name_is_refused(objects: CountingObjects) -> None:
    key = filled(objects)
    found = objects.get(key)
    assert found is not None
    objects.put("heads/other!", found.data)
    with pytest.raises(Corrupt, match=r"is damaged: it belongs to context '书'\. Restore"):
        open_engine(objects.in_another_process()).head("other")


def test_a_newer_format_is_refused_with_the_version_to_install(
    objects: CountingObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(heads, "FORMAT", 7)
        newer.setattr(heads, "quire_version", lambda: "9.8.7")
        write(open_engine(objects), "c", Put(BODY, 1, b"x"))
    storage = open_engine(objects.in_another_process())
    with pytest.raises(NewerFormat, match=r"format 7; .* 9\.8\.7"):
        storage.head("c")
    with pytest.raises(NewerFormat):
        write(storage, "c", Put(BODY, 2, b"y"))


def test_an_object_that_is_no_head_builds_values_only(objects: CountingObjects) -> None:
    for data in (b"quire head\n", b"quire head\n" + msgspec.msgpack.encode((1, "x", 0, b"")), b"\x80\x04cos\nsystem\n"):
        objects.put("heads/c!", data)
        with pytest.raises(QuireError, match="heads/c!"):
            open_engine(objects.in_another_process()).head("c")


def test_objects_of_others_among_the_heads_are_no_contexts(objects: CountingObjects) -> None:
    write(open_engine(objects), "c", Put(BODY, 1, b"x"))
    for key in ("heads/README", "heads/z", "heads/-z!", "heads/c", "heads/zz!", "heads/notes/a.txt"):
        objects.put(key, b"")
    assert list(open_engine(objects.in_another_process()).contexts()) == ["c"]


def test_two_heads_never_have_the_same_bytes(objects: CountingObjects) -> None:
    storage = open_engine(objects)
    seen = set()
    for _ in range(5):
        write(storage, "c", Put(BODY, 1, b"the same"))
        found = objects.get("heads/c!")
        assert found is not None
        seen.add(found.data)
        storage.drop("c")
    assert len(seen) == 5


def two_talks(objects: CountingObjects) -> str:
    """Make two contexts with chunks and remove a chunk of the first. Return its key."""
    storage = open_engine(objects)
    for name in ("书", "谈话"):
        full_talk(storage, name)
    snapshot = storage._states.refresh(storage._states.get("书"))
    assert snapshot is not None
    lost = next(key for key in objects.keys() if key.rpartition("/")[2] in snapshot.head.chunk_ids())  # noqa: SIM118
    objects.delete([lost])
    return lost


@pytest.mark.usefixtures("tiny")
def test_a_missing_chunk_is_damage_to_all_who_copy(objects: CountingObjects, tmp_path: Path) -> None:
    lost = two_talks(objects)
    storage = open_engine(objects.in_another_process())
    library = Library(storage)
    for copy in (lambda: library.export("书", tmp_path / "x.quire"), lambda: library.fork("书", "copy")):
        with pytest.raises(Corrupt, match="missing") as error:
            copy()
        assert lost in str(error.value)
    done = quire.backup(storage, tmp_path / "copy.db")
    assert done.contexts == 1
    assert [lost in problem for problem in done.problems] == [True]
    gone = library.expire(timedelta(0), action="archive", folder=tmp_path / "old")
    assert [(each.name, lost in each.problem) for each in gone] == [("书", True), ("谈话", False)]
    assert list(storage.contexts()) == ["书"]


@pytest.mark.usefixtures("tiny")
def test_what_was_replaced_long_ago_is_no_damage(objects: CountingObjects) -> None:
    full_talk(open_engine(objects), "书")
    with open_engine(objects.in_another_process()).snapshot("书") as still:
        other = open_engine(objects.in_another_process())
        other.compact("书")
        other.collect("书", grace_seconds=0)
        with pytest.raises(Conflict, match="too old"):
            contents(still, "书")
    assert contents(open_engine(objects.in_another_process()), "书")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("what", CHANGES)
def test_a_context_with_a_damaged_head_can_be_deleted(objects: CountingObjects, what: str) -> None:
    storage = open_engine(objects)
    for name in ("书", "谈话"):
        full_talk(storage, name)
    spoil(objects, "heads/" + key_of("书"), CHANGES[what])
    library = Library(open_engine(objects.in_another_process()))
    library.delete("书")
    assert list(library.list()) == ["谈话"]
    assert library.storage.examine() == []  # type: ignore[attr-defined]
    assert quire.doctor(library.storage).healthy
    library.open("书").user("again")
    fresh = Library(open_engine(objects.in_another_process()))
    assert [message.content for message in fresh.open("书").messages()] == ["again"]
