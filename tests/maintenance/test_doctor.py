"""The doctor: it finds and explains every kind of damage, and repairs only what is safe."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import quire
from quire import (
    Busy,
    Context,
    Corrupt,
    FileStorage,
    MemoryStorage,
    QuireError,
    SQLiteStorage,
    Storage,
    StorageFailure,
    doctor,
)
from quire.core.derived_records import VectorRecord
from quire.core.records import encode_body, encode_record
from quire.core.summary_board import board_of
from quire.errors import NewerFormat
from quire.maintenance.doctor import Diagnosis
from quire.maintenance.retention import REMOVING_HEAD
from quire.storage.base import (
    BODY,
    DERIVED,
    JOURNAL,
    PAGE,
    PIN,
    TALLY,
    VECTOR,
    Commit,
    Delete,
    Family,
    Put,
    Symptom,
    Write,
)
from quire.testing.case import contents
from tests.maintenance.damaging import spoiled
from tests.moved_pages import moved
from tests.stores import BACKENDS, make
from tests.talks import full_talk, new_talk


def patch(storage: Storage, *writes: Write, context: str = "c") -> None:
    """Write directly to the storage."""
    head = storage.head(context)
    assert head is not None
    storage.commit(context, Commit(head.version, head.version, head.value, writes))


def codes(found: Diagnosis) -> list[tuple[str, str, bool]]:
    return [(symptom.code, symptom.context, symptom.repaired) for symptom in found.symptoms]


def talk_in(storage: Storage, name: str = "c") -> Context:
    talk = full_talk(storage, name)
    talk.find("Seattle")
    return talk


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sound_store_has_nothing(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = talk_in(storage)
    talk.fork("fork").user("更多")
    talk.pages.storage.drop("c")
    names: list[str] = []
    found = doctor(storage, progress=names.append)
    assert (found.symptoms, found.contexts, found.healthy, names) == ((), 1, True, ["fork"])
    storage.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_damaged_record_is_named_and_left_alone(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk_in(storage)
    talk_in(storage, "d")
    patch(storage, Put(JOURNAL, 3, b"damaged!"))
    before = contents(storage, "c")
    found = doctor(storage, repair=True)
    (symptom,) = found.symptoms
    assert (symptom.code, symptom.severity, symptom.context) == ("record_damaged", "error", "c")
    assert "journal record 3" in symptom.text
    assert "backup" in symptom.remedy
    assert not found.healthy
    assert str(symptom).startswith("error [record_damaged] c: journal 3")
    assert contents(storage, "c") == before
    storage.close()


def test_a_broken_invariant_is_explained(tmp_path: Path) -> None:
    storage = MemoryStorage()
    talk = talk_in(storage)
    record = storage.get("c", PAGE, talk.pages._engine.state.key_of("usr-1") or 0)
    assert record is not None
    patch(storage, moved(record, 12345, b"x"))
    found = doctor(storage)
    assert {symptom.code for symptom in found.symptoms} == {"invariant_broken", "count_wrong"}
    assert any("its parent" in symptom.text and "(invariant 2)" in symptom.text for symptom in found.symptoms)


def test_wrong_counts_and_pins_are_made_anew() -> None:
    storage = MemoryStorage()
    talk = talk_in(storage)
    folder = talk.pages.create_contents_page("folder", "", "mem-0")
    for number in range(3):
        talk.pages.create_detail_page(f"{number}", "", "", folder)
    patch(storage, *(Delete(PIN, record.key) for record in storage.scan("c", PIN)), Put(TALLY, 7, encode_record(7, 9)))
    assert not doctor(storage).healthy
    found = doctor(storage, repair=True)
    assert {symptom.code for symptom in found.symptoms} == {"count_wrong"}
    assert found.healthy
    assert doctor(storage).symptoms == ()
    fresh = new_talk(storage, "c")
    assert fresh.check() == []
    assert fresh.pages.child_count(folder) == 3
    fresh.pages.create_detail_page("one more", "", "", folder)
    assert fresh.check() == []


def damage(storage: Storage, family: Family) -> None:
    record = next(iter(storage.scan("c", family)))
    patch(storage, Put(family, record.key, bytes([record.value[0] ^ 1]) + record.value[1:]))


def lengths(texts: list[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


@pytest.mark.parametrize("backend", BACKENDS)
def test_damaged_counts_and_vectors_are_made_anew(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = talk_in(storage)
    folder = talk.pages.create_contents_page("文件夹", "", "mem-0")
    talk.pages.create_detail_page("note", "", "text", folder)
    talk.pages.create_detail_page("note", "", "text", "mem-0")
    new_talk(storage, "c", embedder=lengths).find("Seattle")
    vectors = len(list(storage.scan("c", VECTOR)))
    assert vectors > 1
    damage(storage, TALLY)
    damage(storage, VECTOR)
    assert [(problem.invariant, problem.derived) for problem in new_talk(storage, "c").check()] == [(0, True)] * 2
    assert not doctor(storage).healthy
    found = doctor(storage, repair=True)
    assert codes(found) == [("record_damaged", "c", True)] * 2
    assert doctor(storage).symptoms == ()
    fresh = new_talk(storage, "c", embedder=lengths)
    assert fresh.pages.child_count(folder) == 1
    fresh.find("Seattle")
    assert len(list(storage.scan("c", VECTOR))) == vectors
    storage.close()


def test_a_damaged_count_beside_a_damaged_page_is_left_alone() -> None:
    storage = MemoryStorage()
    talk_in(storage)
    damage(storage, TALLY)
    damage(storage, PAGE)
    found = doctor(storage, repair=True)
    assert {(symptom.severity, symptom.repaired) for symptom in found.symptoms} == {
        ("error", False),
        ("warning", False),
    }


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Busy("'x.db' is locked by another writer: retry."), "Run it again"),
        (StorageFailure("'x': Permission denied."), "Check the disk, the server or the permissions"),
        (Corrupt("The log is damaged."), "from a backup"),
        (NewerFormat("Install a newer quire."), ""),
    ],
)
def test_the_remedy_fits_what_was_met(error: QuireError, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    talk_in(storage)

    def refuse(context: str) -> None:
        raise error

    monkeypatch.setattr(storage, "snapshot", refuse)
    (symptom,) = doctor(storage).symptoms
    assert (symptom.code, symptom.text) == (error.code, str(error))
    assert remedy in symptom.remedy
    assert ("backup" in symptom.remedy) is isinstance(error, Corrupt)
    assert bool(remedy) is bool(symptom.remedy)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_nothing_refers_to_is_removed(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    talk = talk_in(storage)
    talk.pages.set_detail("mem-1", "another text")
    talk.pages.remove_page("mem-1")  # both of its texts are still in the history
    gone = VectorRecord(b"\0\0")
    patch(storage, Put(BODY, 900, encode_body(900, "stray")), Put(VECTOR, 901, encode_record(901, gone)))
    found = doctor(storage)
    assert codes(found) == [("unreached_records", "c", False)] * 2
    assert found.healthy
    assert codes(doctor(storage, repair=True)) == [("unreached_records", "c", True)] * 2
    assert doctor(storage).symptoms == ()
    back = new_talk(storage, "c")
    back.undo(back.seq)
    assert back.pages.detail("mem-1") == "another text"
    storage.close()


def test_an_unfinished_copy_is_told_and_an_unfinished_removal_is_finished() -> None:
    storage = MemoryStorage()
    storage.commit("copy", Commit(0, -3, b"cursor", ()))
    storage.commit("gone", Commit(0, -1, REMOVING_HEAD, ()))
    storage.commit(board_of("gone"), Commit(0, 1, b"summaries that wait", ()))
    assert codes(doctor(storage)) == [("copy_unfinished", "copy", False), ("removal_unfinished", "gone", False)]
    found = doctor(storage, repair=True)
    assert codes(found) == [("copy_unfinished", "copy", False), ("removal_unfinished", "gone", True)]
    assert list(storage.contexts()) == ["copy"]


def test_a_newer_format_says_what_to_install() -> None:
    storage = MemoryStorage()
    storage.commit("new", Commit(0, 1, encode_record(0, (99, 0, 0, 1)), ()))
    storage.commit("odd", Commit(0, 1, b"what is this", ()))
    new, odd = doctor(storage).symptoms
    assert (new.code, odd.code) == ("newer_format", "corrupt")
    assert "Install a newer quire" in new.text


def test_contexts_can_be_named_and_one_that_is_not_there_is_told() -> None:
    storage = MemoryStorage()
    talk_in(storage)
    patch(storage, Put(JOURNAL, 3, b"damaged!"))
    full_talk(storage, "d")
    assert doctor(storage, contexts=["d"]).healthy
    assert codes(doctor(storage, contexts=["d", "none"])) == [("no_such_context", "none", False)]


# SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    storage = SQLiteStorage(tmp_path / "store.db")
    talk_in(storage)
    storage.close()
    return tmp_path / "store.db"


def change(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()


def test_a_search_index_whose_blocks_were_overwritten_is_noticed_and_made_anew(path: Path) -> None:
    change(path, "UPDATE search_data SET block = zeroblob(length(block)) WHERE id > 100")
    found = doctor(path)
    assert codes(found) == [("search_damaged", "", False)]
    assert "pages themselves are not affected" in found.symptoms[0].text
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True)]
    assert doctor(path).symptoms == ()
    with quire.open(path, "c") as back:
        assert [hit.index for hit in back.find("Seattle")][:1] == ["usr-1"]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM search WHERE rowid IN (SELECT id FROM search_docsize LIMIT 2)",
        "UPDATE search_size SET sizes = zeroblob(1024)",
        "DROP TABLE search_data",
    ],
)
def test_an_index_that_disagrees_with_itself_is_made_anew(path: Path, damage: str) -> None:
    change(path, damage)
    assert ("search_damaged", "", False) in codes(doctor(path))
    doctor(path, repair=True)
    assert doctor(path).symptoms == ()
    with quire.open(path, "c") as back:
        assert [hit.index for hit in back.find("Seattle")][:1] == ["usr-1"]


def test_an_index_that_holds_other_pages_than_there_are_is_emptied(path: Path) -> None:
    storage = SQLiteStorage(path)
    index = storage.search("c")
    stands = index.state()
    assert stands is not None
    index.update(stands, stands, (), [next(iter(storage.scan("c", PAGE))).key])
    assert codes(doctor(storage)) == [("search_outdated", "c", False)]
    assert codes(doctor(storage, repair=True)) == [("search_outdated", "c", True)]
    assert doctor(storage).symptoms == ()


def test_rows_of_no_context_are_removed_and_those_that_forks_read_are_not(path: Path) -> None:
    storage = SQLiteStorage(path)
    full_talk(storage, "origin").fork("fork")
    storage.drop("origin")
    before = contents(storage, "fork")
    change(
        path,
        "INSERT INTO body (id, value) VALUES ((77 << 38) | 1, x'00')",
        "INSERT INTO page (id, ord, value) VALUES ((78 << 38) | 1, x'00', x'00')",
        "INSERT INTO shared VALUES (99, 98, 1, 1)",
    )
    found = doctor(storage, repair=True)
    assert [(symptom.code, symptom.where) for symptom in found.symptoms] == [
        ("orphan_rows", "table shared"),
        ("orphan_rows", "table page"),
        ("orphan_rows", "table body"),
    ]
    assert doctor(storage).symptoms == ()
    assert contents(storage, "fork") == before


def test_a_context_that_lost_its_head_is_told_and_nothing_of_it_is_removed(path: Path) -> None:
    rows = "SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM journal), (SELECT count(*) FROM message)"
    with closing(apsw.Connection(str(path))) as db:
        before = db.execute(rows).fetchall()
        db.execute("DELETE FROM context")
    assert [symptom.code for symptom in doctor(path, repair=True).symptoms] == ["head_lost"]
    with closing(apsw.Connection(str(path))) as db:
        assert db.execute(rows).fetchall() == before


@pytest.mark.parametrize("family", sorted(DERIVED))
def test_a_damaged_table_of_derived_records_is_emptied_and_filled_again(family: Family, path: Path) -> None:
    spoiled(path, family)
    found = doctor(path)
    assert found.symptoms[0].code == "file_damaged"
    assert f"table {family}" in found.symptoms[0].text
    assert "A repair" in found.symptoms[0].remedy
    done = doctor(path, repair=True)
    assert done.healthy
    assert (done.symptoms[0].code, done.symptoms[0].repaired) == ("file_damaged", True)
    assert doctor(path).symptoms == ()
    with quire.open(path, "c") as talk:
        assert talk.check() == []
        talk.user("and on")
        assert talk.render().tokens > 0


@pytest.mark.parametrize("index", ["page_group", "shared_body", "shared_message"])
def test_a_damaged_index_is_created_again(index: str, path: Path) -> None:
    spoiled(path, index)
    assert doctor(path).symptoms[0].code == "order_damaged"
    done = doctor(path, repair=True)
    assert done.healthy
    assert [symptom.code for symptom in done.symptoms] == ["order_damaged", "unused_pages"]
    assert doctor(path).symptoms == ()


def test_unused_pages_stay_in_a_file_with_other_damage(path: Path) -> None:
    spoiled(path, "search_data")
    spoiled(path, "body")
    done = doctor(path, repair=True)
    assert not done.healthy
    assert ("search_damaged", True) in [(symptom.code, symptom.repaired) for symptom in done.symptoms]
    with closing(apsw.Connection(str(path))) as db:
        assert "never used" in str(db.execute("PRAGMA integrity_check").fetchone())


def test_unused_pages_stay_while_somebody_reads(path: Path) -> None:
    spoiled(path, "search_data")
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT 1 FROM context").fetchall()
        storage = SQLiteStorage(path, busy_seconds=0.2)
        done = doctor(storage, repair=True)
        storage.close()
        assert done.healthy
        assert [(symptom.code, symptom.repaired) for symptom in done.symptoms] == [
            ("search_damaged", True),
            ("unused_pages", False),
        ]
    assert doctor(path, repair=True).healthy
    assert doctor(path).symptoms == ()


def test_a_damaged_file_is_a_finding_and_not_an_error(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192 * 4 : 8192 * 7] = b"\xa5" * 8192 * 3
    path.write_bytes(data)
    found = doctor(path, repair=True)
    assert "file_damaged" in {symptom.code for symptom in found.symptoms}
    assert not found.healthy
    path.write_bytes(b"not a database at all" * 999)
    (symptom,) = doctor(path).symptoms
    assert (symptom.code, symptom.severity) == ("corrupt", "error")


def test_a_file_cut_short_is_found(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert not doctor(path).healthy


def test_a_newer_schema_and_another_programs_file_are_told(path: Path) -> None:
    change(path, "PRAGMA user_version = 99")
    (symptom,) = doctor(path).symptoms
    assert symptom.code == "newer_format"
    assert "Install a newer quire" in symptom.text


def test_a_store_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="no store"):
        doctor(tmp_path / "none.db")


def test_a_file_that_can_only_be_read_is_read(path: Path) -> None:
    before = path.read_bytes()
    storage = SQLiteStorage(path, read_only=True)
    assert doctor(storage).symptoms == ()
    with pytest.raises(StorageFailure):
        quire.open(storage, "c").user("no")
    storage.close()
    assert path.read_bytes() == before


# Folders


def test_a_damaged_log_and_a_stray_folder_are_found(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    talk_in(storage)
    talk_in(storage, "d")
    storage.close()
    log = tmp_path / "store" / "c" / "log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    (tmp_path / "store" / "stray").mkdir()
    found = doctor(f"file:{tmp_path / 'store'}")
    assert codes(found) == [("no_context", "", False), ("corrupt", "c", False)]
    assert "damaged at byte" in found.symptoms[1].text
    assert isinstance(found.symptoms[0], Symptom)


@pytest.mark.parametrize("bit", [0x10, 0x40, 0x80])
def test_a_flipped_bit_in_a_chinese_term_of_the_index_is_repaired(bit: int, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with quire.open(path, "客户") as talk:
        talk.user("独特词汇")
        assert talk.find("词汇")
    data = bytearray(path.read_bytes())
    with closing(apsw.Connection(str(path))) as db:
        block = db.execute("SELECT block FROM search_data WHERE instr(block, ?)", ("词汇".encode(),)).get
    at = data.index(block) + block.index("词汇".encode())
    data[at + 3] ^= bit
    path.write_bytes(data)
    assert codes(doctor(path)) == [("search_damaged", "", False)]
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True)]
    assert doctor(path).symptoms == ()


def test_a_store_that_cannot_be_opened_for_another_reason_is_not_called_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SQLiteStorage(tmp_path / "store.db")
    quire.open(storage, "c").user("hello")

    def fail(path: object, **_: object) -> None:
        raise StorageFailure(f"Cannot open {path}: too many open files.")

    monkeypatch.setattr("quire.maintenance.doctor.existing_storage", fail)
    with pytest.raises(StorageFailure, match="too many open files"):
        quire.doctor(tmp_path / "store.db")
