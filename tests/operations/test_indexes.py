"""Damaged search indexes: each damage is noticed by the doctor, explained and repaired, and searches come right."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

import quire
from quire import Library, SQLiteStorage
from quire.operations.doctor import Diagnosis, doctor
from quire.search.catching import pages_from
from quire.search.texts import document
from tests.talks import new_talk

QUERIES = ("kestrel", "数据", "w7x3", "falcon")


def codes(found: Diagnosis) -> list[tuple[str, str, bool]]:
    return [(symptom.code, symptom.context, symptom.repaired) for symptom in found.symptoms]


def fill(storage: quire.Storage, names: tuple[str, ...] = ("c", "d"), messages: int = 60) -> None:
    """Talks whose terms fill more than one leaf of an index."""
    for name in names:
        talk = new_talk(storage, name)
        for n in range(messages):
            talk.user(f"kestrel {n} 数据库 " + " ".join(f"w{n}x{k}" for k in range(40)))
            talk.assistant("ok falcon")
        talk.find("kestrel")


def answers(where: quire.Storage | Path, name: str = "c") -> list[list[tuple[str, float]]]:
    """What a handle of its own answers, scores included."""
    with Library(where) as library:
        ctx = library.open(name)
        return [[(hit.index, hit.score) for hit in ctx.find(query, 200)] for query in QUERIES]


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
    "sizes lost": "DELETE FROM search_size",
    "sizes of nothing": "UPDATE search_size SET sizes = zeroblob(1024)",
    "where it stands": "UPDATE search_state SET reached = 'far'",
    "the version": "UPDATE search_state SET version = 'new'",
    "the table": "DROP TABLE search",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damage_is_noticed_explained_and_repaired(path: Path, right: list[object], damage: str) -> None:
    change(path, damage)
    before = path.read_bytes()
    found = doctor(path)
    assert codes(found) == [("search_damaged", "", False)]
    assert not found.healthy
    assert "pages themselves are not touched" in found.symptoms[0].text
    assert "repair=True" in found.symptoms[0].remedy
    assert path.read_bytes() == before
    assert codes(doctor(path, repair=True)) == [("search_damaged", "", True)]
    assert doctor(path).symptoms == ()
    assert answers(path) == right
    assert doctor(path).symptoms == ()


def test_a_term_that_became_another_is_noticed(path: Path, right: list[object]) -> None:
    with closing(apsw.Connection(str(path))) as db:
        rows: list[Any] = db.execute("SELECT id, block FROM search_data WHERE id > 10").fetchall()
        for number, block in rows:
            db.execute("UPDATE search_data SET block = ? WHERE id = ?", (block.replace(b"estrel", b"estrex"), number))
    assert answers(path) != right
    found = doctor(path, repair=True)
    assert codes(found) == [("search_damaged", "", True)]
    assert "other terms" in found.symptoms[0].text
    assert answers(path) == right


def test_sizes_of_one_body_that_are_wrong_are_noticed(path: Path, right: list[object]) -> None:
    with closing(apsw.Connection(str(path))) as db:
        row: Any = db.execute("SELECT id, sizes FROM search_size WHERE instr(sizes, x'0300')").fetchone()
        changed = row[1].replace(b"\x03\0", b"\x02\0", 1)
        db.execute("UPDATE search_size SET sizes = ? WHERE id = ?", (changed, row[0]))
    found = doctor(path)
    assert codes(found) == [("search_outdated", "c", False)]
    assert "length" in found.symptoms[0].text
    doctor(path, repair=True)
    assert answers(path) == right


def test_pages_under_words_of_others_are_noticed_though_all_counts_are_right(path: Path) -> None:
    storage = SQLiteStorage(path)
    index = storage.search("c")
    stands = index.standing()
    assert stands is not None
    pages = [page for page in pages_from(storage, "c") if "w7x3" in document(storage, "c", page).body]
    pages += [page for page in pages_from(storage, "c") if "w8x3" in document(storage, "c", page).body]
    one, two = (document(storage, "c", page) for page in pages)
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
