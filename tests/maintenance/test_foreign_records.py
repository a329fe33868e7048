"""A record of another context, also of the fork or the origin of a context, is named by the read that needs it."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path

import apsw
import pytest

import quire
from quire import Context, Corrupt, Library, MemoryStorage
from quire.storage.base import BODY, JOURNAL, MESSAGE, NOTE, PAGE, SEGMENT, Family
from tests.stores import BACKENDS, make

FOREIGN: tuple[Family, ...] = (SEGMENT, PAGE, BODY, MESSAGE, NOTE, JOURNAL)
NAMES = ("origin", "fork", "grandchild")


def write(ctx: Context, word: str) -> None:
    """Change records of most families, under the same keys as another context that does this."""
    ctx.user(f"{word} asks for bread.")
    ctx.pages.create_detail_page(word, "", f"{word} bakes bread.", "mem-0")
    ctx.pages.update_page("mem-1", name=f"{word} changed this")
    ctx.pages.update_segment("mem", description=word)
    ctx.checkpoint(word)


def make_family(storage: quire.Storage) -> Library:
    """Write a context, a fork of it and a fork of this fork. All of them change afterwards."""
    library = Library(storage)
    ctx = library.open("origin", budget=4_000)
    ctx.pages.create_detail_page("first", "", "The first page.", "mem-0")
    ctx.pages.create_detail_page("second", "", "The second page.", "mem-0")
    write(ctx, "before")
    fork = ctx.fork("fork")
    write(ctx, "origin")
    write(fork, "fork")
    grandchild = fork.fork("grandchild")
    write(fork, "later")
    fork.pages.update_page("mem-2", name="only the fork changed this")
    write(grandchild, "grandchild")
    return library


READS: tuple[Callable[[Context], object], ...] = (
    lambda ctx: ctx.pages.marshal(),
    lambda ctx: list(ctx.history()),
    lambda ctx: list(ctx.messages(all=True)),
    lambda ctx: ctx.pages.checkpoints(),
    lambda ctx: ctx.find("bread", 10),
)


def answers(storage: quire.Storage, name: str) -> list[object]:
    """Return the answer or the error of every read, each by a handle of its own."""
    found: list[object] = []
    for read in READS:
        try:
            found.append(read(Library(storage).open(name, create=False)))
        except Corrupt as error:
            found.append(error)
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_forks_of_forks_are_whole(backend: str, tmp_path: Path) -> None:
    storage = make(backend, tmp_path / "store")
    library = make_family(storage)
    words = {"origin": "before origin", "fork": "before fork later", "grandchild": "before fork grandchild"}
    assert quire.doctor(storage).healthy
    for name in NAMES:
        ctx = library.open(name, create=False)
        assert [message.text.split()[0] for message in ctx.messages()] == words[name].split()
        assert not any(isinstance(answer, Corrupt) for answer in answers(storage, name))
    library.delete("origin")
    library.delete("fork")
    assert library.open("grandchild", create=False).pages.purge("mem-1").pages == ("mem-1",)
    assert quire.doctor(storage).healthy
    storage.close()


def test_a_record_of_a_fork_or_an_origin_is_noticed() -> None:
    """A record from before the fork that the fork changed later looks like one of the fork: the doctor names it."""
    sound = MemoryStorage()
    make_family(sound)
    right = {name: answers(sound, name) for name in NAMES}
    verdicts: Counter[tuple[str, str]] = Counter()
    for here, there in permutations(NAMES, 2):
        for family in FOREIGN:
            for record in sound.scan(here, family):
                theirs = sound.get(there, family, record.key)
                if theirs is None or theirs == record:
                    continue
                storage = MemoryStorage()
                storage._contexts = {name: (head, table.copy()) for name, (head, table) in sound._contexts.items()}
                storage._contexts[here][1].put(family, record.key, theirs.value, theirs.group, theirs.order)
                found = answers(storage, here)
                if any(isinstance(answer, Corrupt) for answer in found):
                    verdicts[family, "named"] += 1
                    changed = [a for a, b in zip(found, right[here], strict=True) if a != b]
                    assert all(isinstance(answer, Corrupt) for answer in changed), (here, there, family, record.key)
                else:
                    assert not quire.doctor(storage).healthy, (here, there, family, record.key)
                    verdicts[family, "doctor"] += 1
    assert {family for family, verdict in verdicts if verdict == "named"} == set(FOREIGN)
    assert {family for family, verdict in verdicts if verdict == "doctor"} == {PAGE, NOTE}


def test_a_row_in_the_group_of_another_context_is_named(tmp_path: Path) -> None:
    """In SQLite the group of a row names its context. The rows of a shared page are exchanged without their ids."""
    path = tmp_path / "store.db"
    with quire.open(path, "origin") as ctx:
        folder = ctx.pages.create_contents_page("lists", "", "mem-0")
        ctx.fork("fork").close()
    with closing(apsw.Connection(str(path))) as db:
        rows = list(db.execute("SELECT id, grp, ord, value FROM page WHERE instr(value, 'lists')"))
        assert len(rows) == 2
        for (number, *_), (_, *values) in zip(rows, reversed(rows), strict=True):
            db.execute("UPDATE page SET grp = ?, ord = ?, value = ? WHERE id = ?", (*values, number))
    for name in ("origin", "fork"):
        with quire.open(path, name) as ctx, pytest.raises(Corrupt):
            ctx.pages.children("mem-0", after=folder, limit=2)
