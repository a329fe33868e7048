"""Damage: what is read is what was written, or an error; the doctor names it; a backup copies what can be read.

The tests change a copy of a store without knowing its format.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

import quire
from quire import ContentsPage, DetailPage, Library, MemoryStorage, Page, QuireError, doctor, migrate
from tests.seeds import SEED
from tests.talks import full_talk, new_talk

Found = dict[str, dict[str, Any]]
"""What was read of each context, by part; an error stands for what cannot be read."""


def build(url: str) -> None:
    with Library(url) as library:
        talk = full_talk(library.storage, "谈话")
        for number in range(4):
            index = talk.pages.create_detail_page(f"page {number}", "about it", f"text {number} 文字 " * 30, "mem-0")
            talk.pages.set_detail(index, f"another text {number}")
        talk.find("Seattle")
        talk.render()
        talk.fork("分支").user("only here")
        library.create("other").user("hello")


def tried(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error of quire that it raises."""
    try:
        return call()
    except QuireError as error:
        return error


def read(url: str, known: dict[str, list[str]] | None = None) -> Found:
    """Return everything that can be read; of the contexts in `known`, also the texts of these pages."""
    storage = tried(lambda: quire.open_storage(url, create=False))
    if isinstance(storage, QuireError):
        return {}
    with Library(storage) as library:
        names = tried(lambda: list(library.list()))
        found = {name: parts(library, name, (known or {}).get(name, ())) for name in known or names}
        library.storage.close()
    return found


def parts(library: Library, name: str, indices: Sequence[str]) -> dict[str, Any]:
    ctx = tried(lambda: new_talk(library.storage, name, create=False))
    if isinstance(ctx, QuireError):
        return {"open": ctx}
    calls: dict[str, Callable[[], Any]] = {
        "messages": lambda: list(ctx.messages()),
        "all messages": lambda: list(ctx.messages(all=True)),
        "pages": lambda: list(ctx.pages.list_pages()),
        "history": lambda: list(ctx.history()),
        "json": ctx.pages.marshal,
        "view": lambda: ctx.render(preview=True).openai(),
        **{f"text of {index}": partial(ctx.pages.detail, index) for index in indices},
    }
    return {"open": None} | {part: tried(call) for part, call in calls.items()}


def is_named(url: str) -> bool:
    """Return whether the doctor finds damage; a note is none."""
    found = tried(lambda: doctor(url).symptoms)
    return isinstance(found, QuireError) or any(symptom.severity != "note" for symptom in found)


def complaints(original: Found, found: Found, named: bool, may_lack: bool) -> list[str]:
    """Return what is wrong: a value that differs, or damage that nobody names.

    With `may_lack`, something was removed: a value may be as it was before if the doctor says so. Otherwise a list may
    lack something if the doctor says so, and what is made of everything may differ.
    """
    told = []
    for name, values in original.items():
        for part, value in values.items():
            got = found.get(name, {}).get(part, found.get(name, {}).get("open", QuireError("The store does not open.")))
            if isinstance(got, QuireError) and not named:
                told.append(f"{name}: {part}: the doctor does not name {got!r}")
            elif (
                not isinstance(got, QuireError)
                and got != value
                and not (named and (may_lack or part in {"view", "json"} or lacks(got, value)))
            ):
                told.append(f"{name}: {part} differs in silence")
    return told


def lacks(got: object, value: object) -> bool:
    """Return whether a list has only items of another; a folder can lack pages."""
    return (
        isinstance(got, list)
        and isinstance(value, list)
        and all(item in value or isinstance(item, ContentsPage) for item in got)
    )


# Damages


def flip(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def any_file(store: Path, chance: Random) -> Path:
    """Return a file of the store, a large one more likely."""
    files = [store] if store.is_file() else sorted(path for path in store.rglob("*") if path.is_file())
    return chance.choices(files, [path.stat().st_size for path in files])[0]


def flip_in_file(store: Path, chance: Random) -> None:
    path = any_file(store, chance)
    path.write_bytes(flip(path.read_bytes(), chance))


def cut_file(store: Path, chance: Random) -> None:
    path = any_file(store, chance)
    os.truncate(path, chance.randrange(path.stat().st_size))


def remove_file(store: Path, chance: Random) -> None:
    """Remove a file, but not the newest change of a context: without it, the context is as if it was never made."""
    while True:
        path = any_file(store, chance)
        files = [each for each in path.parent.iterdir() if each.is_file()]
        if len(files) == len(list(path.parent.iterdir())) or path != max(files):
            path.unlink()
            return


def change_row(store: Path, chance: Random, change: Callable[[Any, str, dict[str, Any]], bool]) -> None:
    """Change a random row of a random table; `change` gets the database, the table and the row."""
    db: Any = apsw.Connection(str(store))
    with closing(db):
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
        tables = [name for (name,) in db.execute(listed).fetchall()]
        for _ in range(1_000):
            table = chance.choice(tables)
            ((count,),) = db.execute(f'SELECT count(*) FROM "{table}"').fetchall()
            if count:
                cursor = db.execute(f'SELECT * FROM "{table}" LIMIT 1 OFFSET {chance.randrange(count)}')
                names = [str(column[0]) for column in cursor.get_description()]
                if change(db, table, dict(zip(names, next(cursor), strict=True))):
                    return
    raise AssertionError("There is nothing to change.")


def where(row: dict[str, Any]) -> str:
    return " AND ".join(f'"{name}" IS ?' for name in row)


def flip_in_row(store: Path, chance: Random) -> None:
    def change(db: Any, table: str, row: dict[str, Any]) -> bool:
        column = chance.choice(sorted(row))
        value = row[column]
        if not value or not isinstance(value, bytes | str):
            return False
        data = flip(value.encode() if isinstance(value, str) else value, chance)
        new = data.decode("utf-8", "replace") if isinstance(value, str) else data
        db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {where(row)}', (new, *row.values()))
        return True

    change_row(store, chance, change)


def remove_row(store: Path, chance: Random) -> None:
    def change(db: Any, table: str, row: dict[str, Any]) -> bool:
        db.execute(f'DELETE FROM "{table}" WHERE {where(row)}', tuple(row.values()))
        return True

    change_row(store, chance, change)


DAMAGES = {
    "sqlite": [flip_in_row, remove_row, flip_in_file, cut_file],
    "file": [flip_in_file, cut_file, remove_file],
}


@pytest.fixture(scope="module")
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a sound store of each kind."""
    places = {kind: tmp_path_factory.mktemp(kind) / "store" for kind in DAMAGES}
    for kind, place in places.items():
        build(f"{kind}:{place}")
    return places


@pytest.mark.parametrize(
    ("kind", "damage"),
    [(kind, damage) for kind, damages in DAMAGES.items() for damage in damages],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_damage_is_never_passed_over_in_silence(
    kind: str,
    damage: Callable[[Path, Random], None],
    sound: dict[str, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    first = read(f"{kind}:{sound[kind]}")
    pages = {name: values["pages"] for name, values in first.items()}
    known = {name: [page.index for page in found if isinstance(page, DetailPage)] for name, found in pages.items()}
    original = read(f"{kind}:{sound[kind]}", known)
    for number in range(60 if request.config.getoption("--long") else 3):
        store, chance = tmp_path / f"store-{number}", Random(SEED + number)
        (shutil.copytree if kind == "file" else shutil.copy)(sound[kind], store)
        damage(store, chance)
        found = read(f"{kind}:{store}", known)
        named = is_named(f"{kind}:{store}")
        assert complaints(original, found, named, damage in {remove_row, remove_file, cut_file}) == []
        check_backup(f"{kind}:{store}", tmp_path / f"copy-{number}", original, found, known)


def test_a_part_of_a_folder_lacks_no_page_in_silence(tmp_path: Path) -> None:
    sound, store = tmp_path / "sound", tmp_path / "store"
    with closing(quire.open_storage(f"sqlite:{sound}")) as storage:
        talk = new_talk(storage)
        wanted = [talk.pages.create_detail_page(f"page {n}", "", "text", "mem-0") for n in range(9)][:8]
    for seed in range(40):
        shutil.copy(sound, store)
        remove_row(store, Random(seed))
        with closing(quire.open_storage(f"sqlite:{store}")) as storage:
            found = tried(lambda: new_talk(storage, create=False).pages.children("mem-0", limit=8))
        is_whole = not isinstance(found, QuireError) and [page.index for page in found] == wanted
        assert isinstance(found, QuireError) or is_whole or is_named(f"sqlite:{store}")


def check_backup(url: str, copy: Path, original: Found, found: Found, known: dict[str, list[str]]) -> None:
    """Check that a backup has every context that can be read whole."""
    done = tried(lambda: quire.backup(url, copy))
    whole = {name for name in original if found.get(name) == original[name]}
    if isinstance(done, QuireError):
        assert not whole, done
    else:
        copied = read(str(copy), {name: known[name] for name in whole})
        assert copied == {name: original[name] for name in whole}


def rows(store: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return all rows of a database, each with its table."""
    db: Any = apsw.Connection(str(store))
    with closing(db):
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
        found = []
        for (table,) in db.execute(listed).fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            found += [(table, {name: row[n] for n, (name, _) in enumerate(cursor.get_description())}) for row in cursor]
        return found


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a small store, then stores that lack one row of it each."""
    sound = (place := tmp_path_factory.mktemp("losses")) / "sound"
    with quire.open(sound, "c") as ctx:
        ctx.system("Be careful.", name="rules")
        for turn in range(2):
            ctx.user(f"Question {turn}?")
            ctx.render()
            ctx.assistant(f"Answer {turn}.")
        ctx.pages.create_detail_page("note", "", "text", "mem-0")
        ctx.checkpoint("here")
        ctx.conversation.batch_start()
    found = rows(sound)
    for number, (table, row) in enumerate(found):
        store = shutil.copy(sound, place / str(number))
        with closing(apsw.Connection(str(store))) as db:
            db.execute(f'DELETE FROM "{table}" WHERE {where(row)}', tuple(row.values()))
    return [f"sqlite:{place / name}" for name in ("sound", *map(str, range(len(found))))]


def test_a_lost_row_is_told_without_its_consequences_and_changes_nothing_in_silence(losses: list[str]) -> None:
    original, told = read(losses[0]), set()
    for url in losses[1:]:
        found = tried(partial(doctor, url))
        if not isinstance(found, QuireError):
            told.add(tuple(sorted({symptom.severity for symptom in found.symptoms})))
        assert complaints(original, read(url), is_named(url), may_lack=True) == []
    assert ("error",) in told
    assert ("error", "warning") not in told  # no repair is offered for what follows from a loss


def test_after_a_loss_no_older_view_is_taken_for_the_last_and_no_copy_lacks_a_context(losses: list[str]) -> None:
    for url in losses:
        with Library(url) as library, Library(MemoryStorage()) as target:
            talk = tried(partial(new_talk, library.storage, "c", create=False))
            sent = talk if isinstance(talk, QuireError) else tried(talk.last_sent)
            assert isinstance(sent, QuireError) or sent.reply == 4
            copied = tried(partial(migrate, library.storage, target.storage))
            assert isinstance(copied, QuireError) or list(target.list()) == ["c"]


def test_check_names_every_page_without_its_text_and_no_page_that_can_be_read(losses: list[str]) -> None:
    with quire.open(losses[0], "c") as ctx:
        pages = list(ctx.pages.list_pages())
    for url in losses:
        with Library(url) as library:
            talk = tried(partial(new_talk, library.storage, "c", create=False))
            problems = talk if isinstance(talk, QuireError) else tried(talk.check)
            if not isinstance(problems, QuireError):
                named = {problem.where for problem in problems if not problem.derived and "-" in problem.where}
                gone = unreadable(talk.pages.get_page, pages)
                empty = unreadable(talk.pages.detail, [page for page in pages if isinstance(page, DetailPage)])
                assert empty - gone <= named <= empty | gone


def unreadable(read_page: Callable[[str], object], pages: list[Page]) -> set[str]:
    return {page.index for page in pages if isinstance(tried(partial(read_page, page.index)), QuireError)}


def test_a_page_with_another_number_is_told(losses: list[str], tmp_path: Path) -> None:
    sound, store = Path(losses[0].removeprefix("sqlite:")), tmp_path / "store"
    found = [(table, row, name) for table, row in rows(sound) for name in row if "rules" in str(row)]
    numbers = [(table, row, name) for table, row, name in found if isinstance(row[name], int)]
    assert numbers
    for (table, row, name), bit in product(numbers, range(0, 40, 5)):
        shutil.copy(sound, store)
        with closing(apsw.Connection(str(store))) as db:
            update = f'UPDATE OR REPLACE "{table}" SET "{name}" = ? WHERE {where(row)}'
            db.execute(update, (row[name] ^ 1 << bit, *row.values()))
        assert is_named(f"sqlite:{store}")


def test_what_a_repair_makes_again_is_as_before_and_what_is_lost_stays(losses: list[str], tmp_path: Path) -> None:
    original, repaired, store = read(losses[0]), 0, tmp_path / "store"
    for url in losses[1:]:
        shutil.copy(url.removeprefix("sqlite:"), store)
        before = rows(store)
        found = tried(partial(doctor, f"sqlite:{store}", repair=True))
        if not isinstance(found, QuireError) and found.symptoms and found.healthy:
            repaired += 1
            assert doctor(f"sqlite:{store}").symptoms == ()
            after = read(f"sqlite:{store}")["c"]
            assert after | {"history": None} == original["c"] | {"history": None}
            assert [entry.operation for entry in after["history"]][-1] == "repair"
        else:
            assert rows(store) == before
    assert repaired
