"""Export and import: complete files only, round trips, and damage reported with its position."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

import quire
from quire import (
    Conflict,
    Context,
    Corrupt,
    InvalidOperation,
    Library,
    MemoryStorage,
    NoSuchContext,
    SQLiteStorage,
    StorageFailure,
)
from quire.core.context_copy import Progress
from quire.errors import NewerFormat
from quire.maintenance import person_copy
from quire.maintenance.export import _FRAME, ExportFile, export_context, import_context
from quire.storage.base import Commit, Head, Put
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import contents
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk, said


@pytest.fixture
def talk() -> Context:
    return full_talk(name="谈话 1")


@pytest.fixture
def exported(talk: Context, tmp_path: Path) -> Path:
    export_context(talk.pages.storage, talk.name, tmp_path / "talk.quire")
    return tmp_path / "talk.quire"


# There and back


@pytest.mark.parametrize("to", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_a_context_comes_back_as_it_was_and_can_be_undone(source: str, to: str, tmp_path: Path) -> None:
    talk = full_talk(make(source, tmp_path / "from"), "c")
    storage = talk.pages.storage
    done = export_context(storage, "c", tmp_path / "c.quire")
    assert (done.context, done.phase, done.bytes) == ("c", "done", (tmp_path / "c.quire").stat().st_size)
    target = make(to, tmp_path / "to")
    assert import_context(target, tmp_path / "c.quire") == "c"
    assert contents(target, "c") == contents(storage, "c")
    back = new_talk(target, "c")
    assert back.check() == []
    assert said(back, all=True) == said(talk, all=True)
    last = [entry for entry in back.history() if entry.operation == "create_detail_page"][-1]
    back.undo(last)
    assert back.find("note") == []
    storage.close()
    target.close()


def test_a_fork_is_whole_in_its_file(tmp_path: Path) -> None:
    talk = full_talk(SQLiteStorage(tmp_path / "x.db"), "c")
    talk.fork("fork").user("only here")
    library = Library(talk.pages.storage)
    library.export("fork", tmp_path / "fork.quire")
    library.delete("c")
    library.delete("fork")
    other = Library(MemoryStorage())
    other.import_(tmp_path / "fork.quire")
    assert "only here" in [message.content for message in other.open("fork").messages()]
    assert other.open("fork").check() == []


def test_it_is_imported_under_another_name_beside_itself(talk: Context, exported: Path) -> None:
    storage = talk.pages.storage
    assert import_context(storage, exported, "副本") == "副本"
    assert contents(storage, "副本")[1:] == contents(storage, talk.name)[1:]  # the head has a checksum of the name
    new_talk(storage, "副本").user("and on")
    assert talk.refresh() is False


def test_importing_what_is_there_already_changes_nothing_and_another_of_that_name_is_refused(
    talk: Context, exported: Path
) -> None:
    storage = talk.pages.storage
    assert import_context(storage, exported) == talk.name
    talk.pages.hide("mem-0")
    with pytest.raises(InvalidOperation, match=r"Another context '谈话 1' exists already"):
        import_context(storage, exported)


def test_progress_is_told(talk: Context, tmp_path: Path) -> None:
    told: list[Progress] = []
    export_context(talk.pages.storage, talk.name, tmp_path / "x", progress=told.append)
    assert told[-1].phase == "done"
    import_context(MemoryStorage(), tmp_path / "x", progress=told.append)
    assert [step.phase for step in told].count("copy") > 1


# Whole or not at all


def test_an_existing_file_is_left_alone_unless_told(talk: Context, exported: Path) -> None:
    before = exported.read_bytes()
    talk.pages.hide("mem-0")
    with pytest.raises(InvalidOperation, match="exists already"):
        export_context(talk.pages.storage, talk.name, exported)
    assert exported.read_bytes() == before
    export_context(talk.pages.storage, talk.name, exported, overwrite=True)
    assert exported.read_bytes() != before


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_somebody_made_meanwhile_is_left_alone(
    talk: Context, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)

    def overtake(_: Progress) -> None:
        place.write_bytes(b"theirs")

    place = tmp_path / "x"
    with pytest.raises(InvalidOperation, match="exists already"):
        export_context(talk.pages.storage, talk.name, place, progress=overtake)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"theirs")]
    place.unlink()
    export_context(talk.pages.storage, talk.name, place)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("fail_at", range(1, 14))
def test_an_export_that_fails_leaves_no_file(talk: Context, tmp_path: Path, fail_at: int) -> None:
    faulty = FaultyStorage(talk.pages.storage, fail_at)
    with pytest.raises(InjectedFault):
        export_context(faulty, talk.name, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_an_import_interrupted_anywhere_is_no_context_and_goes_on(talk: Context, exported: Path) -> None:
    counted = FaultyStorage(MemoryStorage())
    import_context(counted, exported)
    for fail_at in range(1, len(counted.calls) + 1):
        inner = MemoryStorage()
        with pytest.raises(InjectedFault):
            import_context(FaultyStorage(inner, fail_at), exported, "c")
        head = inner.head("c")
        if head is not None:
            assert head.version < 0
            with pytest.raises(InvalidOperation, match="unfinished"):
                quire.open(inner, "c")
        import_context(inner, exported, "c")
        assert contents(inner, "c")[1:] == contents(talk.pages.storage, talk.name)[1:]


def test_a_path_that_cannot_be_written_or_read_is_named(talk: Context, tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="nowhere"):
        export_context(talk.pages.storage, talk.name, tmp_path / "nowhere" / "x")
    with pytest.raises(StorageFailure, match="nothing"):
        import_context(MemoryStorage(), tmp_path / "nothing")
    with pytest.raises(NoSuchContext):
        export_context(talk.pages.storage, "none", tmp_path / "x")
    talk.pages.storage.commit("half", Commit(0, -1, b"", ()))
    with pytest.raises(InvalidOperation, match="unfinished"):
        export_context(talk.pages.storage, "half", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


# While others write


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_writer_at_work_costs_no_consistency(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = new_talk(storage, "c")
    talk.user("first")
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.001):
            talk.user("more " * 20)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(4):
            export_context(storage, "c", tmp_path / f"{number}.quire")
    finally:
        ended.set()
        writer.join()
    seqs = []
    for number in range(4):
        target = MemoryStorage()
        import_context(target, tmp_path / f"{number}.quire")
        back = new_talk(target, "c")
        assert back.check() == []
        assert len(back.messages()) == back.seq - 1
        seqs.append(back.seq)
    assert seqs == sorted(seqs)
    storage.close()


def test_without_a_snapshot_it_is_tried_again_and_then_refused(tmp_path: Path) -> None:
    talk = new_talk()
    inner = talk.pages.storage

    class Restless(FaultyStorage):
        """Let another writer commit after each of the first reads of the head."""

        left = 0

        def head(self, context: str) -> Head | None:
            if self.left:
                self.left -= 1
                talk.user("more")
            return self.inner.head(context)

    restless = Restless(inner)
    restless.left = 3
    export_context(restless, "talk", tmp_path / "x")
    with ExportFile(tmp_path / "x") as file:
        assert file.head("talk") == inner.head("talk")
    restless.left = 99
    with pytest.raises(Conflict, match="changed during each attempt"):
        export_context(restless, "talk", tmp_path / "y")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


# Damage


def damages(data: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(0, len(data), 293):
        yield place, data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
        yield place, data[:place]


def test_every_flipped_byte_and_every_cut_is_refused(exported: Path) -> None:
    data = exported.read_bytes()
    broken = exported.with_name("broken")
    for place, damaged in damages(data):
        broken.write_bytes(damaged)
        target = MemoryStorage()
        with pytest.raises((Corrupt, NewerFormat), match="broken") as caught:
            import_context(target, broken)
        assert list(target.contexts()) == []
        if place > 20 and len(damaged) == len(data):
            assert "damaged at byte" in str(caught.value)
    broken.write_bytes(data + b"x")
    with pytest.raises(Corrupt, match="bytes after its end"):
        import_context(MemoryStorage(), broken)
    broken.write_bytes(data[:-1])
    with pytest.raises(Corrupt, match="incomplete"):
        import_context(MemoryStorage(), broken)


def test_damage_after_the_opening_is_reported_with_its_position(exported: Path) -> None:
    with ExportFile(exported) as file:
        start = file._starts["page"]
        payload, _ = file._read_frame(start)
        damaged = payload[:1] + b"\xc1" * (len(payload) - 1)
        with exported.open("r+b") as other:
            other.seek(start)
            other.write(_FRAME.pack(len(damaged), crc32(damaged)) + damaged)
        file._file.close()  # its buffer has the old bytes
        file._file = exported.open("rb")
        with pytest.raises(Corrupt, match=f"damaged at byte {start}:"):
            list(file.scan("", "page"))


def test_a_newer_format_is_refused_with_what_to_do(exported: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    newer.write_bytes(exported.read_bytes().replace(b"quire export 1", b"quire export 2", 1))
    with pytest.raises(NewerFormat, match=r"export format 2; this quire reads up to 1\. Install a newer quire"):
        import_context(MemoryStorage(), newer)
    newer.write_bytes(b"PK\x03\x04" + os.urandom(200))
    with pytest.raises(Corrupt, match="is no exported context"):
        import_context(MemoryStorage(), newer)


def test_an_exported_file_is_read_only(exported: Path) -> None:
    with ExportFile(exported) as file:
        assert list(file.contexts()) == ["谈话 1"]
        assert list(file.contexts("谈话 1")) == []
        assert file.get("", "note", 1 << 30) is None
        writes: list[Callable[[], object]] = [
            lambda: file.commit("c", Commit(1, 2, b"", [Put("page", 1, b"")])),
            lambda: file.drop("c"),
            lambda: file.fork("c", "d", Commit(1, 2, b"", ()), {}),
            lambda: file.members("c", "page", 1),
            lambda: list(file.scan("c", "page", reverse=True)),
        ]
        for write in writes:
            with pytest.raises(InvalidOperation, match="Import it first"):
                write()


class CountedIndex(str):
    """An index that counts how often its hash is needed."""

    hashed = 0

    def __hash__(self) -> int:
        CountedIndex.hashed += 1
        return super().__hash__()


def test_a_persons_copy_takes_time_in_proportion_to_the_pages() -> None:
    indices = [CountedIndex(f"usr-{number}") for number in range(301)]
    page = {"name": "n", "description": "", "author": "user", "createdAt": "", "lifecycle": 0}
    pages: dict[str, dict[str, object]] = {index: dict(page) for index in indices}
    pages[indices[0]]["children"] = indices[1:]
    segment = {"id": "usr", "name": "Conversation", "description": "", "rootIndex": indices[0]}
    document = {"createdAt": "", "updatedAt": "", "segments": [segment], "pages": pages}
    CountedIndex.hashed = 0
    assert "".join(person_copy._to_html("c", document)).count("<article") == 300
    assert CountedIndex.hashed < 10 * len(indices)
