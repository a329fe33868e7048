"""Damage: every copy reports it, none copies it silently, and nothing is removed because of it."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import quire
from quire import Corrupt, FileStorage, Library, MemoryStorage, SQLiteStorage, Storage, StorageFailure, migrate
from quire.core.records import CHECKPOINTS, page_key
from quire.maintenance.export import import_context
from quire.storage.base import BODY, JOURNAL, MESSAGE, NOTE, PAGE, Commit, Delete, Family, Head, Put, Record, Write
from quire.storage.paths import file_name
from quire.testing.case import contents
from tests.maintenance.test_doctor import patch
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk


def first(storage: Storage, family: Family, context: str = "c") -> Record:
    return next(iter(storage.scan(context, family)))


def flipped(storage: Storage, family: Family, context: str = "c") -> Write:
    record = first(storage, family, context)
    value = bytes([record.value[0] ^ 1]) + record.value[1:]
    return Put(family, record.key, value, record.group, record.order)


DAMAGES: dict[str, tuple[Callable[[Storage], Write], str]] = {
    "a body": (lambda storage: flipped(storage, BODY), r"'c': body record \d+ is damaged"),
    "a page": (lambda storage: flipped(storage, PAGE), r"'c': page record \d+ is damaged"),
    "a message": (lambda storage: flipped(storage, MESSAGE), r"'c': message record \d+ is damaged"),
    "an entry": (lambda storage: flipped(storage, JOURNAL), r"'c': journal record \d+ is damaged"),
    "a lost body": (
        lambda storage: Delete(BODY, first(storage, BODY).key),
        r"'c': body record \d+ is missing; page record",
    ),
    "a lost message": (
        lambda storage: Delete(MESSAGE, first(storage, MESSAGE).key),
        r"'c': message record \d+ is missing; page record",
    ),
    "a lost page": (
        lambda storage: Delete(PAGE, next(r.key for r in storage.scan("c", PAGE, reverse=True))),
        r"'c': page record \d+ is missing; journal record \d+",
    ),
    "a lost checkpoint": (
        lambda storage: Delete(NOTE, CHECKPOINTS + new_talk(storage, "c").checkpoint("存盘")),
        r"'c': note record \d+ is missing; journal record \d+",
    ),
    "a lost entry": (lambda storage: Delete(JOURNAL, 3), r"'c': journal record 3 is missing; the next one is 4"),
    "the last entry": (
        lambda storage: Delete(JOURNAL, next(iter(storage.scan("c", JOURNAL, reverse=True))).key),
        r"'c': journal record \d+ is missing; the context is at",
    ),
}


def damaged(storage: Storage, damage: str) -> str:
    """Damage one of three contexts; return the expected text."""
    for name in ("a", "c", "d"):
        full_talk(storage, name)
    write, said = DAMAGES[damage]
    patch(storage, write(storage))
    return said


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_context_is_not_copied_and_the_others_are(damage: str) -> None:
    source, target = MemoryStorage(), MemoryStorage()
    said = damaged(source, damage)
    with pytest.raises(Corrupt, match=said):
        migrate(source, target)
    assert list(target.contexts()) == ["a", "d"]
    assert contents(target, "d") == contents(source, "d")
    with pytest.raises(Corrupt, match=said):
        new_talk(source, "c").pages.migrate(target)
    assert list(target.contexts()) == ["a", "d"]


def test_a_lost_checkpoint_or_page_is_told_by_the_doctor_and_by_check() -> None:
    storage = MemoryStorage()
    talk = full_talk(storage, "c")
    talk.pages.undo(talk.checkpoint("undone"))  # the undone text still exists, without its name
    seq = talk.checkpoint("存盘")
    index = talk.pages.create_detail_page("a lost note", "", "text", "mem-0")
    assert talk.check() == []
    key = max(record.key for record in storage.scan("c", PAGE) if b"a lost note" in record.value)
    patch(storage, Delete(NOTE, CHECKPOINTS + seq), Delete(PAGE, key))
    found = [symptom for symptom in quire.doctor(storage, repair=True).symptoms if symptom.code == "record_damaged"]
    assert {symptom.where for symptom in found} == {f"checkpoint at entry {seq}", index}
    assert all("missing; journal record" in symptom.text for symptom in found)


def test_a_damaged_root_is_not_an_empty_folder() -> None:
    storage = MemoryStorage()
    key = page_key(quire.open(storage, "c").pages._engine.state.require_segment("mem"), 0)
    root, head = storage.get("c", PAGE, key), storage.head("c")
    assert root is not None
    assert head is not None
    broken = Put(PAGE, key, root.value[:-1] + bytes([root.value[-1] ^ 1]), root.group, root.order)
    storage.commit("c", Commit(head.version, head.version, head.value, [broken]))
    with pytest.raises(Corrupt, match="mem-0"):
        list(quire.open(storage, "c").pages._engine.state.members(key))


def test_several_damaged_contexts_are_named() -> None:
    source = MemoryStorage()
    for name in ("c", "d", "e"):
        full_talk(source, name)
        patch(source, flipped(source, BODY, name), context=name)
    with pytest.raises(Corrupt, match=r"'c': body record .* Not copied either: 'd', 'e'\."):
        migrate(source, MemoryStorage())


def test_a_copy_that_was_there_already_stays_when_its_source_is_damaged_later() -> None:
    source, target = MemoryStorage(), MemoryStorage()
    full_talk(source, "c")
    migrate(source, target)
    before = contents(target, "c")
    patch(source, flipped(source, BODY))
    with pytest.raises(Corrupt, match="body record"):
        migrate(source, target)
    assert contents(target, "c") == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_damaged_context_is_not_exported(backend: str, damage: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    full_talk(storage, "c")
    write, said = DAMAGES[damage]
    patch(storage, write(storage))
    (tmp_path / "out").mkdir()
    with pytest.raises(Corrupt, match=said):
        Library(storage).export("c", tmp_path / "out" / "c.quire")
    assert list((tmp_path / "out").iterdir()) == []
    storage.close()


def test_what_is_changed_while_it_is_read_is_not_called_damaged(tmp_path: Path) -> None:
    """A storage without snapshots can show a page of one state and miss its text of another."""
    talk = full_talk(MemoryStorage(), "c")
    inner = talk.pages.storage

    class Torn:
        """Loses a body during the first scan, and returns it later with a newer head."""

        readings = 0

        def __getattr__(self, name: str) -> object:
            if name == "snapshot":
                raise AttributeError(name)
            return getattr(inner, name)

        def head(self, context: str) -> Head | None:
            return inner.head(context)

        def scan(self, context: str, family: Family, *span: int, reverse: bool = False) -> object:
            records = list(inner.scan(context, family, *span, reverse=reverse))
            if family == BODY:
                self.readings += 1
                if self.readings == 1:
                    talk.user("somebody writes")
                    return iter(records[1:])
            return iter(records)

    Library(Torn()).export("c", tmp_path / "c.quire")  # type: ignore[arg-type]
    target = MemoryStorage()
    import_context(target, tmp_path / "c.quire")
    assert contents(target, "c") == contents(inner, "c")


def test_a_store_is_migrated_by_url_and_by_path(tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db", "谈话") as talk:
        talk.user("你好")
    migrate(tmp_path / "a.db", f"file:{tmp_path / 'b'}")
    migrate(f"file:{tmp_path / 'b'}", str(tmp_path / "c.db"), "谈话")
    assert [message.content for message in quire.open(tmp_path / "c.db", "谈话").messages()] == ["你好"]
    with pytest.raises(StorageFailure, match="no store"):
        migrate(tmp_path / "none.db", MemoryStorage())
    assert not (tmp_path / "none.db").exists()


# Values of a wrong type in an SQLite file, which accepts any type


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a file with a context and its fork."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    storage = SQLiteStorage(path)
    talk = full_talk(storage, "c")
    talk.checkpoint("here")
    talk.fork("fork").user("更多")
    storage.close()
    return path.read_bytes()


WRONG_TYPES = {
    **{f"{family}.value = 5": f"{family} record" for family in ("segment", "page", "body", "journal", "message")},
    **{f"{family}.value = 'x'": f"{family} record" for family in ("tally", "pin", "call", "note")},
    "page.ord = 7": "its ord in table page is 7",
    "page.grp = 'x'": "its grp in table page is 'x'",
    "context.head = 3": "its head in table context is 3",
    "context.version = 'x'": "its version in table context is 'x'",
    "shared.origin = 'x'": "table shared is damaged: its origin is 'x'",
    "shared.body = 'x'": "table shared is damaged: its body is 'x'",
    "shared.origin = id": "table shared is damaged: its origin is",
}


@pytest.mark.parametrize("wrong", WRONG_TYPES)
def test_a_value_of_a_wrong_type_is_named_by_the_doctor_and_by_reading(
    wrong: str, sound_file: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sound_file)
    table, setting = wrong.split(".", 1)
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"UPDATE {table} SET {setting} WHERE id = (SELECT max(id) FROM {table})")
        assert db.changes() == 1
    found = quire.doctor(path, repair=True)
    said = [symptom for symptom in found.symptoms if WRONG_TYPES[wrong] in symptom.text]
    assert said, found.symptoms
    assert {(symptom.code, symptom.severity) for symptom in said} == {("corrupt", "error")}
    name = said[0].context
    with pytest.raises(Corrupt, match=WRONG_TYPES[wrong]), SQLiteStorage(path).snapshot(name) as storage:
        contents(storage, name)
    with pytest.raises(Corrupt, match=WRONG_TYPES[wrong]):
        migrate(path, MemoryStorage())


@pytest.mark.parametrize("name", ["''", "x'00ff'"])
def test_a_name_that_nothing_leads_to_is_told(name: str, sound_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(sound_file)
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"UPDATE context SET name = {name} WHERE name = 'c'")
    found = quire.doctor(path, repair=True)
    assert "head_lost" in {symptom.code for symptom in found.symptoms}
    assert not found.healthy
    assert found.contexts == 1


# A context without its head


LONG = "团队 " * 20 + "长"
"""A name that is too long for a folder."""


def folder_of_talks(place: Path) -> FileStorage:
    storage = FileStorage(place)
    for name in ("c", LONG, "d"):
        full_talk(storage, name)
    storage.close()
    return FileStorage(place)


@pytest.mark.parametrize("loss", ["gone", "empty"])
@pytest.mark.parametrize("name", ["c", LONG], ids=["short", "long"])
def test_a_folder_that_lost_its_log_is_no_new_context(name: str, loss: str, tmp_path: Path) -> None:
    storage = folder_of_talks(tmp_path / "store")
    log = tmp_path / "store" / file_name(name) / "log"
    log.unlink() if loss == "gone" else log.write_bytes(b"")
    before = sorted(log.parent.rglob("*"))
    with pytest.raises(Corrupt, match="log is missing or empty"):
        quire.open(storage, name)
    with pytest.raises(Corrupt, match="log is missing or empty"):
        storage.commit(name, Commit(0, 1, b"", ()))
    assert sorted(path for path in log.parent.rglob("*") if path.name != "lock") == [
        path for path in before if path.name != "lock"
    ]
    assert name in storage.contexts()
    with pytest.raises(Corrupt, match="log is missing or empty"):
        migrate(storage, MemoryStorage())
    found = quire.doctor(storage, repair=True)
    assert [(symptom.code, symptom.context) for symptom in found.symptoms] == [("corrupt", name)]
    Library(storage).delete(name)
    assert name not in storage.contexts()
    assert quire.doctor(storage).healthy
    quire.open(storage, name).user("anew")
    storage.close()


def test_a_folder_whose_name_cannot_be_told_is_told_by_the_doctor(tmp_path: Path) -> None:
    storage = folder_of_talks(tmp_path / "store")
    folder = tmp_path / "store" / file_name(LONG)
    (folder / "log").unlink()
    (folder / "stamp.json").unlink()
    found = quire.doctor(storage)
    assert [(symptom.code, symptom.where) for symptom in found.symptoms] == [("head_lost", folder.name)]
    assert found.contexts == 2
    storage.close()


def test_a_folder_that_was_copied_by_hand_is_named(tmp_path: Path) -> None:
    storage = folder_of_talks(tmp_path / "store")
    shutil.copytree(tmp_path / "store" / "c", tmp_path / "store" / "copy")
    assert list(storage.contexts()) == ["c", "copy", "d", LONG]
    (symptom,) = quire.doctor(storage).symptoms
    assert (symptom.code, symptom.context) == ("corrupt", "copy")
    storage.close()


def test_a_first_commit_that_was_torn_is_nothing(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    full_talk(storage, "c")
    storage.close()
    whole = (tmp_path / "store" / "c" / "log").read_bytes()
    shutil.rmtree(tmp_path / "store" / "c")
    (tmp_path / "store" / "c").mkdir()
    (tmp_path / "store" / "c" / "log").write_bytes(whole[:40])
    storage = FileStorage(tmp_path / "store")
    assert (storage.head("c"), list(storage.contexts())) == (None, [])
    assert [symptom.code for symptom in quire.doctor(storage).symptoms] == ["no_context"]
    quire.open(storage, "c").user("anew")
    storage.close()
