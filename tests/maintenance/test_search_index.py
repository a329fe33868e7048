"""Damaged search indexes: the doctor finds and repairs each damage, and searches are correct afterwards."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import psycopg
import pytest
from msgspec.structs import replace

import quire
from quire import Library, PostgresStorage, SQLiteStorage, StorageFailure, doctor
from quire.core.records import NO_MARK
from quire.maintenance.doctor import Diagnosis
from quire.search.indexing import scan_pages
from quire.search.page_text import build_document
from quire.storage.postgres.address import parse
from tests.maintenance.damaging import spoiled
from tests.servers.postgres import postgres_url
from tests.talks import new_talk

QUERIES = ("kestrel", "数据", "eagle7", "falcon")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def codes(found: Diagnosis) -> list[tuple[str, str, bool]]:
    return [(symptom.code, symptom.context, symptom.repaired) for symptom in found.symptoms]


def fill(storage: quire.Storage, names: tuple[str, ...] = ("c", "d"), messages: int = 16) -> None:
    """Fill contexts; the first has enough terms for more than one leaf of an index."""
    for name, many in zip(names, (messages, 3), strict=False):
        talk = new_talk(storage, name)
        for n in range(many):
            words = " ".join(f"{LETTERS[n]}{one}{two}rest" for one in LETTERS for two in "abc")
            talk.user(f"kestrel eagle{n} 数据库 {words}")
            talk.assistant("ok falcon")
        talk.find("kestrel")


def answers(where: str | Path, name: str = "c") -> list[list[tuple[str, float]]]:
    """Return the search results of a new handle, with scores."""
    with Library(where) as library:
        ctx = library.open(name)
        return [[(hit.index, hit.score) for hit in ctx.find(query, 40)] for query in QUERIES]


# SQLite


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "store.db"
    storage = SQLiteStorage(path)
    fill(storage)
    storage.close()
    return path.read_bytes()


@pytest.fixture
def path(filled: bytes, tmp_path: Path) -> Path:
    (tmp_path / "store.db").write_bytes(filled)
    return tmp_path / "store.db"


@pytest.fixture(scope="module")
def right(filled: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[str, float]]]:
    path = tmp_path_factory.mktemp("right") / "store.db"
    path.write_bytes(filled)
    return answers(path)


def change(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute(statement)


DAMAGES = {
    "the list of segments": "UPDATE search_data SET block = zeroblob(length(block)) WHERE id = 10",
    "the totals": "UPDATE search_data SET block = zeroblob(length(block)) WHERE id = 1",
    "every leaf": "UPDATE search_data SET block = zeroblob(length(block)) WHERE id > 10",
    "a leaf": "DELETE FROM search_data WHERE id = (SELECT max(id) FROM search_data)",
    "everything": "DELETE FROM search_data",
    "the way to the leaves": "DELETE FROM search_idx",
    "the way to one leaf": "DELETE FROM search_idx WHERE pgno = (SELECT max(pgno) FROM search_idx)",
    "its settings": "DELETE FROM search_config",
    "the table of settings": "DROP TABLE search_config",
    "the sizes of fields": "UPDATE search_docsize SET sz = x'ff'",
    "the size of one field": "UPDATE search_docsize SET sz = x'09090909' WHERE id % 2 = 0",
    "documents": "DELETE FROM search_docsize",
    "sizes cut short": "UPDATE search_size SET sizes = x'ff'",
    "sizes of an odd form": "UPDATE search_size SET sizes = x'ffff'",
    "sizes that are text": "UPDATE search_size SET sizes = 'what'",
    "sizes that are a number": "UPDATE search_size SET sizes = 5",
    "sizes lost": "DELETE FROM search_size",
    "sizes of nothing": "UPDATE search_size SET sizes = zeroblob(1024)",
    "where it stands": "UPDATE search_state SET reached = 'far'",
    "the version": "UPDATE search_state SET version = 'new'",
    "the serial number": "UPDATE search_state SET serial = 'next'",
    "the table": "DROP TABLE search",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damage_is_noticed_explained_and_repaired(path: Path, right: list[object], damage: str) -> None:
    change(path, damage)
    before = path.read_bytes()
    found = doctor(path)
    assert codes(found) == [("search_damaged", "", False)]
    assert not found.healthy
    assert "pages themselves are not affected" in found.symptoms[0].text
    assert "A repair" in found.symptoms[0].remedy
    assert path.read_bytes() == before
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True)]
    assert doctor(path).symptoms == ()
    assert answers(path) == right
    assert doctor(path).symptoms == ()


TABLES = ("data", "idx", "docsize", "config", "state", "size")


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_page_of_a_table_is_repaired(path: Path, right: list[object], table: str) -> None:
    spoiled(path, f"search_{table}")
    assert codes(doctor(path)) == [("search_damaged", "", False)]
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True), ("unused_pages", "", True)]
    assert doctor(path).symptoms == ()
    assert answers(path) == right
    assert doctor(path).symptoms == ()


@pytest.mark.parametrize("table", [table for table in TABLES if table != "docsize"])  # a search does not read it
def test_a_search_rebuilds_an_index_with_a_damaged_page(path: Path, right: list[object], table: str) -> None:
    spoiled(path, f"search_{table}")
    assert answers(path) == right
    found = doctor(path)
    assert found.healthy
    assert codes(found) == [("unused_pages", "", False)]
    assert codes(doctor(path, repair=True)) == [("unused_pages", "", True)]
    assert answers(path) == right
    assert doctor(path).symptoms == ()


def test_pages_of_another_table_are_not_freed_with_the_index(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    with Library(path) as library:
        talk = library.open("c")
        for n in range(400):
            talk.user(f"kestrel {n} " * 20)
        talk.find("kestrel")
    with closing(apsw.Connection(str(path))) as db:
        rows: list[Any] = db.execute("SELECT name, rootpage FROM sqlite_schema").fetchall()
        db.pragma("wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    roots = dict(rows)
    message, index = ((roots[name] - 1) * 8192 for name in ("message", "search_idx"))
    assert data[message] == 5  # an inner page of a table; now the index has its children too
    data[index : index + 8192] = data[message : message + 8192]
    path.write_bytes(data)
    with Library(path) as library:
        before = list(library.open("c").messages())
        doctor(library.storage, repair=True)
        talk = library.open("c")
        for n in range(400):
            talk.user(f"falcon {n} " * 20)
        assert list(talk.messages())[:400] == before
        assert talk.check() == []
    assert doctor(path, repair=True).healthy


def test_a_repair_that_is_killed_can_be_repeated(path: Path, right: list[object], tmp_path: Path) -> None:
    spoiled(path, "search_data")
    killed: list[Path] = []

    def copy_files(_: object, sql: str, __: object) -> bool:
        """Keep the files as they are before a statement that changes them."""
        if sql.startswith(("DELETE", "DROP", "CREATE", "COMMIT", "VACUUM")):
            folder = tmp_path / str(len(killed))
            folder.mkdir()
            for file in path.parent.glob(f"{path.name}*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, folder)
            killed.append(folder / path.name)
        return True

    storage = SQLiteStorage(path)
    storage._db.exec_trace = copy_files
    assert doctor(storage, repair=True).healthy
    storage._db.exec_trace = None
    storage.close()
    assert len(killed) > 10
    for copy in killed:
        assert doctor(copy, repair=True).healthy
        assert answers(copy) == right
        assert doctor(copy).symptoms == ()


def test_a_term_that_became_another_is_noticed(path: Path, right: list[object]) -> None:
    with closing(apsw.Connection(str(path))) as db:
        rows: list[Any] = db.execute("SELECT id, block FROM search_data WHERE id > 10").fetchall()
        changed = [(block.replace(b"strel", b"strex"), number) for number, block in rows if b"strel" in block]
        assert changed
        db.executemany("UPDATE search_data SET block = ? WHERE id = ?", changed)
    found = doctor(path, repair=True)
    assert codes(found) == [("search_damaged", "", True)]
    assert "terms" in found.symptoms[0].text
    assert answers(path) == right


def test_a_backup_reports_a_damaged_index_and_ranks_as_before(path: Path, right: list[object], tmp_path: Path) -> None:
    """A byte of a term is flipped: FTS5's own check does not notice it."""
    with closing(apsw.Connection(str(path))) as db:
        number, block = next(
            row for row in db.execute("SELECT id, block FROM search_data WHERE id > 10") if b"strel" in row[1]
        )
        flipped = block.replace(b"strel", b"strem", 1)
        db.execute("UPDATE search_data SET block = ? WHERE id = ?", (flipped, number))
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert answers(path) != right
    for target, is_repaired in (("copy.db", True), (f"file:{tmp_path / 'copy'}", False)):
        where = tmp_path / target if is_repaired else target
        (problem,) = quire.backup(path, where).problems
        assert problem.startswith("search index: Its terms are not those of its documents")
        assert problem.endswith("Repaired in the copy.") is is_repaired
        assert answers(where) == right
        assert doctor(where).symptoms == ()
    assert codes(doctor(path)) == [("search_damaged", "", False)]  # the original is as before


def test_a_backup_reports_an_index_that_does_not_match_its_pages(
    path: Path, right: list[object], tmp_path: Path
) -> None:
    change(
        path, "UPDATE search_size SET sizes = zeroblob(1022) || x'0200' WHERE id = (SELECT min(id) FROM search_size)"
    )
    expected = [(symptom.code, symptom.context) for symptom in doctor(path).symptoms]
    assert expected
    assert len(quire.backup(path, tmp_path / "copy.db").problems) == len(expected)
    assert answers(tmp_path / "copy.db") == right


def test_sizes_of_one_body_that_are_wrong_are_noticed(path: Path, right: list[object]) -> None:
    with closing(apsw.Connection(str(path))) as db:
        row: Any = db.execute("SELECT id, sizes FROM search_size WHERE instr(sizes, x'0300')").fetchone()
        changed = row[1].replace(b"\x03\0", b"\x02\0", 1)
        db.execute("UPDATE search_size SET sizes = ? WHERE id = ?", (changed, row[0]))
    found = doctor(path)
    assert codes(found) == [("search_outdated", "c", False)]
    doctor(path, repair=True)
    assert answers(path) == right


def test_pages_under_words_of_others_are_noticed_though_all_counts_are_right(path: Path) -> None:
    storage = SQLiteStorage(path)
    index = storage.search("c")
    stands = index.state()
    assert stands is not None
    every = [build_document(storage, "c", NO_MARK, page) for page in scan_pages(storage, "c", NO_MARK)]
    one, two = (next(one for one in every if word in one.body) for word in ("eagle7", "eagle8"))
    index.update(stands, stands, [replace(one, key=two.key), replace(two, key=one.key)])
    storage.close()
    assert not doctor(path, contexts=["d"]).symptoms
    assert codes(doctor(path, contexts=["c"])) == [("search_damaged", "", False)]
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True)]


def test_an_index_that_lags_behind_is_no_damage_and_its_own_damage_is_found(path: Path) -> None:
    storage = SQLiteStorage(path)
    new_talk(storage, "c").user("newer")
    storage.close()
    assert doctor(path).symptoms == ()
    change(path, "UPDATE search_data SET block = zeroblob(length(block)) WHERE id = 10")
    assert codes(doctor(path, contexts=["c"])) == [("search_damaged", "", False)]


SEEN = ("the list of segments", "every leaf", "the way to the leaves", "its settings", "sizes cut short", "the version")


@pytest.mark.parametrize(
    "damage",
    [pytest.param(sql, id=name, marks=() if name in SEEN else pytest.mark.slow) for name, sql in DAMAGES.items()],
)
def test_a_search_comes_right_by_itself_or_is_no_worse_than_nothing_lost(
    path: Path, right: list[list[tuple[str, float]]], damage: str
) -> None:
    """A search repairs the damage that it notices. Other damage may hide pages, and the doctor finds it."""
    change(path, damage)
    with Library(path) as library:
        ctx = library.open("c")
        ctx.find("nothing of the kind")
        found = [{hit.index for hit in ctx.find(query, 40)} for query in QUERIES]
    for some, all_of_it in zip(found, right, strict=True):
        assert some <= {index for index, _ in all_of_it}
        assert some or "search_idx" in damage
    doctor(path, repair=True)
    assert answers(path) == right


def test_a_context_with_a_damaged_index_can_be_deleted_and_purged(path: Path) -> None:
    change(path, "DELETE FROM search_data WHERE id > 10")
    with Library(path) as library:
        library.delete("d")
        assert library.open("c").pages.purge("usr-1").scrubbed
    assert doctor(path).symptoms == ()


def test_a_file_that_can_only_be_read_is_searched_as_it_is_now(path: Path, right: list[object]) -> None:
    writing = SQLiteStorage(path)
    ctx = new_talk(writing, "c")
    ctx.user("a heron, 苍鹭")
    ctx.pages.hide("usr-1")
    for stands in ("behind", "empty", "damaged"):
        storage = SQLiteStorage(path, read_only=True)
        reading = new_talk(storage, "c")
        assert [hit.index for hit in reading.find("heron")] == [hit.index for hit in reading.find("苍鹭")] == ["usr-33"]
        assert len(reading.find("kestrel", 200)) == 16
        assert reading.find("nothing of the kind") == []
        storage.close()
        if stands == "behind":
            change(path, "DELETE FROM search_state")
        elif stands == "empty":
            change(path, "DROP TABLE search_config")
    assert [hit.index for hit in ctx.find("heron")] == ["usr-33"]
    writing.close()


def test_a_damage_that_a_reader_may_not_repair_is_told(path: Path) -> None:
    change(path, DAMAGES["the list of segments"])
    storage = SQLiteStorage(path, read_only=True)
    with pytest.raises(StorageFailure, match=r"doctor\(repair=True\)"):
        new_talk(storage, "c").find("kestrel")
    storage.close()


@pytest.mark.parametrize("code", ["search_outdated", "search_damaged"])
def test_a_reader_who_would_repair_hears_what_is_wrong(path: Path, code: str) -> None:
    storage = SQLiteStorage(path)
    index, pages = storage.search("c"), list(scan_pages(storage, "c", NO_MARK))
    stands = index.state()
    assert stands is not None
    if code == "search_outdated":
        index.update(stands, stands, (), [pages[1].key])
    else:  # two pages with the same number of terms are exchanged
        every = [build_document(storage, "c", NO_MARK, page) for page in pages]
        one, two = (one for one in every if {"eagle7", "eagle8"} & set(one.body))
        index.update(stands, stands, [replace(one, key=two.key), replace(two, key=one.key)])
    storage.close()
    with closing(SQLiteStorage(path, read_only=True)) as reading:
        assert codes(doctor(reading, repair=True)) == [(code, "c" if code == "search_outdated" else "", False)]


# PostgreSQL


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"q{uuid4().hex}"
    yield name
    with connected() as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


def connected() -> psycopg.Connection[Any]:
    return psycopg.connect(parse(postgres_url()).url, autocommit=True)


def execute(schema: str, statement: str) -> None:
    with connected() as db:
        db.execute(f"SET search_path TO {schema}".encode())
        db.execute(statement.encode())


ON_SERVER = {
    "documents": "DELETE FROM search",
    "a document": "DELETE FROM search WHERE key = (SELECT max(key) FROM search)",
    "what leads to documents": "UPDATE search SET terms = ''",
    "what leads to one": "UPDATE search SET terms = '' WHERE key = (SELECT max(key) FROM search)",
    "words": "UPDATE search SET body = replace(body, 'kestrel', 'kestrex')",
    "a document too many": "INSERT INTO search SELECT context, key + 99, terms, '', '', '', '' FROM search",
    "sizes lost": "DELETE FROM search_size",
    "sizes cut short": "UPDATE search_size SET sizes = '\\xff'",
    "sizes of nothing": r"UPDATE search_size SET sizes = decode(repeat('00', 1024), 'hex')",
}


LONG = ("a document", "what leads to one", "a document too many", "sizes of nothing")


@pytest.mark.parametrize(
    "damage",
    [pytest.param(case, id=name, marks=pytest.mark.slow if name in LONG else ()) for name, case in ON_SERVER.items()],
)
def test_a_damage_on_a_server_is_noticed_explained_and_repaired(schema: str, damage: str) -> None:
    url = postgres_url(schema=schema)
    with closing(PostgresStorage(url)) as storage:
        fill(storage, ("c",), 3)
    right = answers(url)
    assert all(right[:2])
    execute(schema, damage)
    found = doctor(url)
    assert codes(found) == [("search_outdated", "c", False)]
    assert "does not match" in found.symptoms[0].text
    assert codes(doctor(url, repair=True)) == [("search_outdated", "c", True)]
    assert doctor(url).symptoms == ()
    assert answers(url) == right
    assert doctor(url).symptoms == ()


@pytest.mark.parametrize("damage", ["DELETE FROM search", "UPDATE search SET terms = ''", "DELETE FROM search_state"])
def test_an_index_on_a_server_that_finds_nothing_is_made_anew_by_the_search(schema: str, damage: str) -> None:
    url = postgres_url(schema=schema)
    with closing(PostgresStorage(url)) as storage:
        fill(storage, ("c",), 3)
    right = answers(url)
    execute(schema, damage)
    assert answers(url) == right
    assert doctor(url).symptoms == ()


@pytest.mark.parametrize("table", ["TABLE search", "TABLE search_state", "TABLE search_size", "INDEX search_terms"])
def test_a_table_of_the_index_that_was_dropped_is_made_again(schema: str, table: str) -> None:
    url = postgres_url(schema=schema)
    storage = PostgresStorage(url)
    fill(storage, ("c",), 3)
    right = answers(url)
    execute(schema, f"DROP {table}")
    found = doctor(storage)
    assert codes(found) == [("search_damaged", "", False)]
    assert "missing" in found.symptoms[0].text
    assert codes(doctor(storage, repair=True)) == [("search_damaged", "", True)]
    assert doctor(storage).symptoms == ()
    assert answers(url) == right
    execute(schema, f"DROP {table}")
    assert [len(new_talk(storage, "c").find(query, 200)) for query in QUERIES] == list(map(len, right))  # by the search
    storage.close()
    execute(schema, f"DROP {table.replace(' ', ' IF EXISTS ')}")
    assert answers(url) == right  # and by opening it
    assert doctor(url).symptoms == ()


def test_a_role_that_only_reads_finds_what_is_there_now(schema: str) -> None:
    url = postgres_url(schema=schema)
    own = PostgresStorage(url)
    fill(own, ("c",), 3)
    with connected() as db:
        for statement in grants(schema):
            db.execute(statement.encode())
    reader = url.replace("postgres@", f"{schema}@", 1)
    talk = new_talk(own, "c")
    talk.user("a heron, 苍鹭")
    talk.pages.hide("usr-1")
    try:
        talk.find("heron")
        execute(schema, "UPDATE search SET terms = ''")
        assert codes(doctor(reader, repair=True)) == [("search_outdated", "c", False)]
        execute(schema, f"REVOKE SELECT ON search_state FROM {schema}")
        assert doctor(reader).symptoms == ()  # it cannot check an index that it may not read
        execute(schema, f"GRANT SELECT ON search_state TO {schema}")
        assert codes(doctor(url, repair=True)) == [("search_outdated", "c", True)]
        for damage in ("", "DELETE FROM search_state", "DROP TABLE search_size", "DROP TABLE search"):
            talk.find("heron")
            if damage:
                execute(schema, damage)
            with closing(PostgresStorage(reader)) as storage:
                reading = new_talk(storage, "c")
                assert [hit.index for hit in reading.find("苍鹭")] == ["usr-7"]
                assert len(reading.find("kestrel")) == 3
                assert reading.find("nothing of the kind") == []
                held = reading.as_of(reading.seq)
                held.user("held back, 白鹭")
                assert {hit.index for hit in held.find("鹭")} == {"usr-7", "usr-8"}
                with pytest.raises(StorageFailure, match="permission denied"):
                    reading.user("no")
        found = doctor(reader, repair=True)
        assert codes(found) == [("search_damaged", "", False)]
        assert "may not create tables" in found.symptoms[0].text
        assert [hit.index for hit in talk.find("heron")] == ["usr-7"]
    finally:
        own.close()
        with connected() as db:
            db.execute(f"DROP SCHEMA {schema} CASCADE".encode())
            db.execute(f"DROP OWNED BY {schema}".encode())
            db.execute(f"DROP ROLE {schema}".encode())


def grants(schema: str) -> list[str]:
    """Return the grants that the documentation lists for a read-only role."""
    text = (Path(__file__).parent.parent.parent / "docs" / "postgres.md").read_text("utf-8")
    block = text.partition("## A role that only reads")[2].partition("```sql\n")[2].partition("```")[0]
    return [line.replace("quire_reader", schema).replace("quire", schema) for line in block.splitlines()]
