"""Export and import: complete files only, round trips, damage, and a copy for a person."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from quire import (
    Context,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    Library,
    MemoryStorage,
    NoSuchContext,
    StorageFailure,
)
from quire.errors import NewerFormat
from quire.testing import FaultyStorage, InjectedFault
from tests.maintenance.raw_stores import CHINESE, LATIN, SECRET
from tests.marks import servers
from tests.servers.stores import new_url
from tests.stores import BACKENDS, make
from tests.talks import calling, full_talk, new_talk, stored, texts


@pytest.fixture
def talk() -> Context:
    return full_talk(name="谈话 1")


@pytest.fixture
def exported(talk: Context, tmp_path: Path) -> Path:
    path = tmp_path / "talk.quire"
    Library(talk.pages.storage).export(talk.name, path)
    return path


# There and back


@pytest.mark.parametrize("backend", [*BACKENDS, *servers("postgres", "s3")])
def test_a_context_comes_back_as_it_was_and_can_be_undone(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Library(new_url(backend, tmp_path, monkeypatch))
    talk = full_talk(there.storage, "c")
    phases: list[str] = []
    done = there.export("c", tmp_path / "c.quire", progress=lambda step: phases.append(step.phase))
    assert (done.context, done.phase, done.bytes) == ("c", "done", (tmp_path / "c.quire").stat().st_size)
    assert phases[-1] == "done"
    assert (tmp_path / "c.quire").stat().st_mode & 0o077 == 0
    assert there.import_(tmp_path / "c.quire", "副本") == "副本"  # beside itself
    target = Library("memory:")
    assert target.import_(tmp_path / "c.quire") == "c"
    for storage, name in ((there.storage, "副本"), (target.storage, "c")):
        back = new_talk(storage, name)
        assert back.check() == []
        assert stored(back) == stored(talk)
        back.undo([entry for entry in back.history() if entry.operation == "create_detail_page"][-1])
        assert back.find("note") == []
    there.storage.close()


def test_a_fork_is_whole_in_its_file(tmp_path: Path) -> None:
    with Library(tmp_path / "x.db") as library:
        full_talk(library.storage, "c").fork("fork").user("only here")
        library.export("fork", tmp_path / "fork.quire")
        library.delete("c")
        library.delete("fork")
    other = Library(MemoryStorage())
    other.import_(tmp_path / "fork.quire")
    assert "only here" in texts(other.open("fork"))
    assert other.open("fork").check() == []


def test_importing_what_is_there_already_changes_nothing_and_another_of_that_name_is_refused(
    talk: Context, exported: Path
) -> None:
    library = Library(talk.pages.storage)
    assert library.import_(exported) == talk.name
    talk.pages.hide("mem-0")
    with pytest.raises(InvalidOperation):
        library.import_(exported)


# Whole or not at all


def test_an_existing_file_is_left_alone_unless_told(talk: Context, exported: Path) -> None:
    library, before = Library(talk.pages.storage), exported.read_bytes()
    talk.pages.hide("mem-0")
    with pytest.raises(InvalidOperation):
        library.export(talk.name, exported)
    assert exported.read_bytes() == before
    library.export(talk.name, exported, overwrite=True)
    assert exported.read_bytes() != before


def test_a_file_that_somebody_made_meanwhile_is_left_alone(talk: Context, tmp_path: Path) -> None:
    place = tmp_path / "x"

    def overtake(step: object) -> None:
        place.write_bytes(b"theirs")

    with pytest.raises(InvalidOperation):
        Library(talk.pages.storage).export(talk.name, place, progress=overtake)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"theirs")]


@pytest.mark.parametrize("fail_at", [1, 2, 4, 7])
def test_an_export_that_fails_leaves_no_file(talk: Context, tmp_path: Path, fail_at: int) -> None:
    with pytest.raises(InjectedFault):
        Library(FaultyStorage(talk.pages.storage, fail_at)).export(talk.name, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_an_import_interrupted_anywhere_is_no_context_and_goes_on(talk: Context, exported: Path) -> None:
    counted = FaultyStorage(MemoryStorage())
    Library(counted).import_(exported)
    for fail_at in range(1, len(counted.calls) + 1, 3):
        inner = MemoryStorage()
        with pytest.raises(InjectedFault):
            Library(FaultyStorage(inner, fail_at)).import_(exported, "c")
        if Library(inner).exists("c"):
            with pytest.raises(InvalidOperation):
                quire.open(inner, "c")
        Library(inner).import_(exported, "c")
        assert stored(new_talk(inner, "c")) == stored(talk)


def test_a_path_that_cannot_be_written_or_read_is_an_error(talk: Context, tmp_path: Path) -> None:
    library = Library(talk.pages.storage)
    with pytest.raises(StorageFailure):
        library.export(talk.name, tmp_path / "nowhere" / "x")
    with pytest.raises(StorageFailure):
        library.import_(tmp_path / "nothing")
    with pytest.raises(NoSuchContext):
        library.export("none", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_writer_at_work_costs_no_consistency(backend: str, tmp_path: Path) -> None:
    library = Library(make(backend, tmp_path / "store"))
    talk, ended = new_talk(library.storage, "c"), threading.Event()
    talk.user("first")

    def write() -> None:
        while not ended.wait(0.001):
            talk.user("more " * 20)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            library.export("c", tmp_path / f"{number}.quire")
    finally:
        ended.set()
        writer.join()
    seqs = []
    for number in range(3):
        target = Library("memory:")
        back = target.open(target.import_(tmp_path / f"{number}.quire"))
        assert back.check() == []
        assert len(back.messages()) == back.seq - 1
        seqs.append(back.seq)
    assert seqs == sorted(seqs)
    library.storage.close()


# Damage


def damages(data: bytes) -> Iterator[bytes]:
    for place in range(0, len(data), len(data) // 24):
        yield data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]
        yield data[:place]
    yield data + b"x"
    yield data[:-1]
    yield b"PK\x03\x04" + os.urandom(200)


def test_every_flipped_byte_and_every_cut_is_refused(exported: Path) -> None:
    broken = exported.with_name("broken")
    for damaged in damages(exported.read_bytes()):
        broken.write_bytes(damaged)
        target = Library("memory:")
        with pytest.raises((Corrupt, NewerFormat)) as caught:
            target.import_(broken)
        assert "broken" in str(caught.value)
        assert list(target.list()) == []


# A copy for a person


def confidential(library: Library) -> Context:
    ctx = library.create("ada")
    ctx.system("Be brief.")
    ctx.user("Hello <b>there</b> 你好")
    ctx.assistant("A slip", calling("a"))
    ctx.tool_result("a", "found it")
    ctx.conversation.delete(2)
    dot = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    ctx.add({"role": "user", "content": [{"type": "text", "text": "Look:"}, dot]})
    ctx.pages.add_segment(quire.Segment(id="staff", name="Staff", permission=quire.Permission.PRIVATE))
    ctx.pages.create_detail_page("opinion", "", f"difficult {SECRET}", "staff-0")
    note = ctx.pages.create_detail_page("address", "", f"was {SECRET}", "mem-0")
    ctx.pages.set_detail(note, "Rue des Fleurs 7")
    ctx.pages.archive(note, cold=True)
    return ctx


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_copy_for_a_person_has_no_private_segment_and_no_history(form: str, tmp_path: Path) -> None:
    library = Library("memory:")
    confidential(library)
    path = tmp_path / f"ada.{form}"
    done = library.export("ada", path, format=form)  # type: ignore[arg-type]
    text = path.read_text()
    assert (done.bytes, done.phase) == (len(text.encode()), "done")
    for hidden in (LATIN, CHINESE, "Staff", "staff-0", "opinion", "difficult"):
        assert hidden not in text
        assert json.dumps(hidden).strip('"') not in text
    for shown in ("Be brief.", "你好", "A slip", "found it", "Rue des Fleurs 7", "iVBORw0KGgo="):
        assert shown in text
    with pytest.raises(InvalidOperation):
        library.export("ada", path, format=form)  # type: ignore[arg-type]
    assert path.read_text() == text


def test_the_html_cannot_run_anything(tmp_path: Path) -> None:
    library = Library("memory:")
    ctx = library.create("<script>alert(1)</script>")
    ctx.pages.create_detail_page('"><img src=x onerror=alert(3)>', "<i>", "</pre><script>", "mem-0")
    link = {"type": "image_url", "image_url": {"url": 'https://x.y/"><script>.png'}}
    ctx.user([{"type": "text", "text": "<script>alert(2)</script>"}, link])
    library.export(ctx.name, tmp_path / "x.html", format="html")
    text = (tmp_path / "x.html").read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "default-src 'none'" in text


def test_the_json_of_a_person_can_be_loaded(tmp_path: Path) -> None:
    library = Library("memory:")
    ctx = confidential(library)
    library.export("ada", tmp_path / "ada.json", format="json")
    again = library.create("again")
    again.pages.load(tmp_path / "ada.json")
    assert texts(again) == texts(ctx)
    assert again.check() == []
    pages = json.loads(ctx.pages.marshal())["pages"]
    copy = json.loads((tmp_path / "ada.json").read_bytes())["pages"]
    assert copy == {index: page for index, page in pages.items() if not index.startswith("staff")}


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    library = Library("memory:")
    library.create("c")
    with pytest.raises(InvalidValue):
        library.export("c", tmp_path / "c", format="xml")  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()
