"""Lost heads on real servers: they are reported, nothing is removed, and damage is reported too."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quire
from quire import Context, Corrupt, Library, MemoryStorage, NoSuchContext, PostgresStorage, S3Storage, migrate
from quire.core.records import encode_record
from quire.storage.base import BODY, JOURNAL, TALLY, Put
from quire.storage.postgres.address import parse
from quire.storage.postgres.connection import Session
from quire.testing.case import contents
from tests.maintenance.test_damage import flipped
from tests.maintenance.test_doctor import patch
from tests.maintenance.test_servers import Server
from tests.maintenance.test_servers import server as server
from tests.servers.postgres import postgres_url
from tests.talks import full_talk, new_talk


@contextmanager
def database(server: Server) -> Iterator[Any]:
    with psycopg.connect(parse(postgres_url()).url, autocommit=True) as db:
        db.execute(f"SET search_path = {server.schema}")
        yield db


def found(server: Server, *, repair: bool = False) -> list[tuple[str, str]]:
    return [(symptom.code, symptom.severity) for symptom in quire.doctor(server.storage, repair=repair).symptoms]


def test_what_is_damaged_is_not_copied_exported_or_archived(server: Server, tmp_path: Path) -> None:
    storage, library = server.storage, Library(server.storage)
    for name in ("a", "c"):
        full_talk(storage, name)
    patch(storage, flipped(storage, BODY))
    target = MemoryStorage()
    with pytest.raises(Corrupt, match=r"'c': body record \d+ is damaged"):
        migrate(storage, target)
    assert list(target.contexts()) == ["a"]
    with pytest.raises(Corrupt, match=r"'c': body record \d+ is damaged"):
        library.export("c", tmp_path / "c.quire")
    done = library.expire(timedelta(0), action="archive", folder=tmp_path)
    assert [(one.name, "body record" in one.problem) for one in done] == [("a", False), ("c", True)]
    assert list(storage.contexts()) == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.quire"]


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_context_without_its_row_is_told_and_nothing_of_it_is_removed(server: Server) -> None:
    assert isinstance(server.storage, PostgresStorage)
    full_talk(server.storage, "c").fork("fork").user("更多")
    full_talk(server.storage, "gone").fork("reads").user("on")
    server.storage.drop("gone")
    assert found(server) == []
    with database(server) as db:
        before = db.execute("SELECT * FROM record ORDER BY context, family, key").fetchall()
        db.execute("DELETE FROM context WHERE name IN ('c', 'fork')")
    assert found(server, repair=True) == [("head_lost", "error"), ("head_lost", "error")]
    with database(server) as db:
        assert db.execute("SELECT * FROM record ORDER BY context, family, key").fetchall() == before
    assert new_talk(server.storage, "reads").check() == []


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_backup_reports_lost_rows_and_a_wrong_index(server: Server, tmp_path: Path) -> None:
    for name in ("c", "d"):
        full_talk(server.storage, name).find("Seattle")
    assert quire.backup(server.storage, tmp_path / "first.db").problems == ()
    with database(server) as db:
        db.execute("DELETE FROM context WHERE name = 'c'")
        db.execute("UPDATE search SET body = ' other ' WHERE key = (SELECT min(key) FROM search WHERE body <> '')")
    lost, wrong = quire.backup(server.storage, tmp_path / "second.db").problems
    assert "the row with its name and version is missing" in lost
    assert wrong.startswith("d: search index: It does not match the pages")
    assert quire.doctor(tmp_path / "second.db").symptoms == ()


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_rows_of_nobody_are_removed_and_those_that_forks_read_are_not(server: Server) -> None:
    full_talk(server.storage, "origin").fork("fork").user("on")
    server.storage.drop("origin")
    before = contents(server.storage, "fork")
    with database(server) as db:
        db.execute("INSERT INTO record VALUES (7777, 1, NULL, 3, '', 'x'), (7777, 2, NULL, 3, '', 'x')")
        db.execute("INSERT INTO shared VALUES (7777, 7776, 1, 1)")
    (symptom,) = quire.doctor(server.storage).symptoms
    assert (symptom.code, symptom.text) == ("orphan_rows", "2 rows belong to no context.")
    assert found(server, repair=True) == [("orphan_rows", "warning")]
    assert found(server) == []
    assert contents(server.storage, "fork") == before


@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_a_context_without_its_head_object_is_told_and_nothing_of_it_is_removed(server: Server, tmp_path: Path) -> None:
    assert isinstance(server.storage, S3Storage)
    talk = full_talk(server.storage, "团队")
    talk.pages.create_detail_page("large", "", "请记住这句话。" * 20_000, "mem-0")  # more than a head holds
    full_talk(server.storage, "d")
    assert found(server) == []
    objects = server.storage.objects
    key = next(listed.key for listed in objects.list("heads") if listed.key != "heads/d!")
    objects.delete([key])
    left = [listed.key for listed in objects.list("data")]
    assert left
    (symptom,) = quire.doctor(server.storage, repair=True).symptoms
    assert (symptom.code, symptom.severity) == ("head_lost", "error")
    assert [listed.key for listed in objects.list("data")] == left
    done = quire.backup(server.storage, tmp_path / "copy.db")
    assert done.contexts == 1
    assert (
        [problem for problem in done.problems if "its head object is missing" in problem] == list(done.problems) != []
    )


def test_a_context_that_is_dropped_leaves_nothing_to_tell(server: Server) -> None:
    talk = full_talk(server.storage, "c")
    talk.pages.create_detail_page("large", "", "x" * 100_000, "mem-0")
    talk.fork("fork").user("更多")
    server.storage.drop("c")
    assert found(server) == []
    server.storage.drop("fork")
    assert found(server) == []


def test_a_handle_learns_that_its_context_was_deleted(server: Server) -> None:
    full_talk(server.storage, "c")
    again = server.another()
    talks = [new_talk(again, "c") for _ in range(5)]
    Library(server.storage).delete("c")
    acts: list[Callable[[Context], object]] = [
        lambda talk: talk.user("too late"),
        lambda talk: list(talk.history()),
        lambda talk: talk.pages.get_page("mem-99"),
        lambda talk: talk.pages.marshal(),
        lambda talk: talk.find("hello"),
    ]
    for talk, act in zip(talks, acts, strict=True):
        with pytest.raises(NoSuchContext, match="'c' was deleted"):
            act(talk)
    assert list(server.storage.contexts()) == []
    again.close()


def test_damage_is_found_in_small_contexts_and_in_forks(server: Server) -> None:
    talk = full_talk(server.storage, "c")
    talk.pages.create_detail_page("later", "", "only here", "mem-0")
    talk.fork("fork").user("更多")
    talk.pages.purge("mem-1", forks=False)  # the fork still reads it
    assert found(server) == []
    patch(server.storage, Put(JOURNAL, 3, b"damaged!"))
    patch(server.storage, Put(TALLY, 1, encode_record(1, 77)), context="fork")
    assert {(s.code, s.context) for s in quire.doctor(server.storage, repair=True).symptoms} == {
        ("record_damaged", "c"),
        ("count_wrong", "fork"),
    }
    assert found(server) == [("record_damaged", "error")]


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_a_small_context_is_examined_by_one_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        full_talk(server.storage, name)
    asked: list[str] = []
    read = Session.read

    def noted(self: Session, text: str, values: Sequence[Any] = ()) -> list[Any]:
        asked.append(text)
        return read(self, text, values)

    monkeypatch.setattr(Session, "read", noted)
    assert found(server) == []
    assert sum("{q}.record " in text for text in asked) == 3  # orphaned rows are read in a snapshot
