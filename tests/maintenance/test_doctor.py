"""The doctor: a sound store has nothing, a store that cannot be read is a finding, and nothing is made worse."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import quire
from quire import Library, MemoryStorage, SQLiteStorage, StorageFailure, doctor, migrate
from quire.testing import FaultyStorage, InjectedFault
from tests.marks import servers
from tests.servers.stores import new_url
from tests.stores import BACKENDS
from tests.talks import full_talk, new_talk, stored


@pytest.mark.parametrize("backend", [*BACKENDS, *servers("postgres", "s3")])
def test_a_sound_store_has_nothing(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Library(new_url(backend, tmp_path, monkeypatch)) as library:
        talk = full_talk(library.storage, "c")
        talk.find("Seattle")
        fork = talk.fork("fork")
        fork.user("更多")
        fork.pages.set_detail("mem-1", "another text")
        fork.pages.remove_page("mem-1")  # both of its texts are still in the history
        library.delete("c")
        names: list[str] = []
        found = doctor(library.storage, progress=names.append)
        assert (found.symptoms, found.contexts, found.healthy, names) == ((), 1, True, ["fork"])
        before = stored(library.open("fork"))
        assert doctor(library.storage, repair=True).symptoms == ()
        assert stored(library.open("fork")) == before


def test_contexts_can_be_named_and_one_that_is_not_there_is_told() -> None:
    storage = MemoryStorage()
    full_talk(storage, "d")
    assert doctor(storage, contexts=["d"]).healthy
    (symptom,) = doctor(storage, contexts=["d", "none"]).symptoms
    assert (symptom.code, symptom.context, symptom.repaired) == ("no_such_context", "none", False)
    assert "none" in str(symptom)


def test_an_unfinished_copy_is_no_damage_and_is_never_taken_for_a_context() -> None:
    source, target = MemoryStorage(), MemoryStorage()
    full_talk(source, "c")
    with pytest.raises(InjectedFault):
        migrate(source, FaultyStorage(target, 6), "c")
    for repair in (False, True):
        assert all(symptom.severity != "error" for symptom in doctor(target, repair=repair).symptoms)
    migrate(source, target, "c")
    assert doctor(target).symptoms == ()
    assert stored(new_talk(target, "c")) == stored(new_talk(source, "c"))


def test_what_is_left_of_a_context_that_is_gone_is_removed(path: Path) -> None:
    with Library(path) as library:
        with library.turn("d") as talk:
            talk.user("hello")
        library.storage.drop("d")
        (told,) = doctor(library.storage).symptoms
        assert (told.code, told.severity) == ("leftover", "note")
        assert doctor(library.storage, repair=True).healthy
        assert doctor(library.storage).symptoms == ()
        assert list(library.list()) == ["c"]


def test_a_repair_beside_a_lost_name_removes_nothing(path: Path) -> None:
    with Library(path) as library:
        library.create("d").user("hello")
    with closing(apsw.Connection(str(path))) as db:
        db.execute("DELETE FROM context WHERE name IS NOT NULL AND id = (SELECT min(id) FROM context)")
    before = path.stat().st_size
    for repair in (False, True):
        codes = {symptom.code: symptom for symptom in doctor(path, repair=repair).symptoms}
        assert codes["name_lost"].severity == "error"
        assert not any(symptom.repaired for symptom in codes.values())
    assert path.stat().st_size == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    storage = SQLiteStorage(tmp_path / "store.db")
    full_talk(storage, "c").find("Seattle")
    storage.close()
    return tmp_path / "store.db"


def test_a_file_that_is_no_store_is_a_finding_and_left_alone(path: Path) -> None:
    for data in (b"not a database at all" * 999, path.read_bytes()[: path.stat().st_size // 2]):
        path.write_bytes(data)
        found = doctor(path, repair=True)
        assert not found.healthy
        assert "error" in {symptom.severity for symptom in found.symptoms}
        assert all(symptom.text and symptom.remedy for symptom in found.symptoms)


def test_a_file_that_can_only_be_read_is_read(path: Path) -> None:
    before = path.read_bytes()
    storage = SQLiteStorage(path, read_only=True)
    assert doctor(storage).symptoms == ()
    with pytest.raises(StorageFailure):
        quire.open(storage, "c").user("no")
    storage.close()
    assert path.read_bytes() == before
