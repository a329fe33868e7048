"""Operations on real servers: purged data leaves no byte, backups are files, exports can be imported."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

import quire
from quire import Context, Library, PostgresStorage, S3Storage, Storage
from quire.storage.postgres.address import parse
from quire.testing.case import contents
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, open_s3
from tests.talks import calling, full_talk, new_talk

SECRET = "qzwxyjkvbor"


class Server:
    """A store on a server, with access to its rows or objects."""

    def __init__(self, kind: str, name: str) -> None:
        self.schema = "purge_" + sha256(name.encode()).hexdigest()[:16]
        self.storage: Storage
        if kind == "postgres":
            self.url = postgres_url(schema=self.schema)
            self.storage = PostgresStorage(self.url)
        else:
            self.prefix = fresh_prefix()
            self.storage = open_s3(self.prefix)

    def another(self) -> Storage:
        """Return another handle on the same store."""
        return PostgresStorage(self.url) if isinstance(self.storage, PostgresStorage) else open_s3(self.prefix)

    def holds(self) -> bool:
        """Return whether a row or an object contains the secret; chunks are decoded."""
        return any(SECRET.encode() in data for data in (*self._raw(), *self._records()))

    def _records(self) -> Iterator[bytes]:
        for name in self.storage.contexts():
            yield repr(contents(self.storage, name)).encode()

    def _raw(self) -> Iterator[bytes]:
        if isinstance(self.storage, S3Storage):
            for listed in self.storage.objects.list(""):
                found = self.storage.objects.get(listed.key)
                yield found.data if found else b""
            return
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
        with psycopg.connect(parse(postgres_url()).url) as db:
            for (table,) in db.execute(tables, (self.schema,)).fetchall():
                for row in db.execute(f"SELECT * FROM {self.schema}.{table}"):
                    yield b" ".join(_bytes(value) for value in row)


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()


@pytest.fixture(params=["postgres", "s3"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    made = Server(request.param, str(tmp_path))
    yield made
    made.storage.close()


def secretive(server: Server) -> tuple[Context, str]:
    talk = new_talk(server.storage, "c")
    index = talk.pages.create_detail_page("note", "", f"old {SECRET}", "mem-0")
    talk.pages.set_detail(index, f"new {SECRET}")
    talk.pages.update_page(index, name=f"named {SECRET}")
    talk.assistant(None, calling("a"))
    talk.tool_result("a", f"said {SECRET}")
    talk.user("on")
    talk.find(SECRET)
    return talk, index


def test_a_purged_page_leaves_the_server_and_its_forks(server: Server) -> None:
    talk, index = secretive(server)
    fork = talk.fork("fork")
    fork.pages.set_detail(index, f"in the fork {SECRET}")
    fork.find(SECRET)
    assert server.holds()
    done = fork.pages.purge(index, "usr-1")
    assert set(done.contexts) == {"c", "fork"}
    if isinstance(server.storage, PostgresStorage):  # its files keep old versions of rows until they are vacuumed
        assert "VACUUM (FULL, ANALYZE)" in done.problem
    assert done.scrubbed is not bool(done.problem)
    assert not server.holds()
    for name in ("c", "fork"):
        fresh = new_talk(server.storage, name)
        assert fresh.check() == []
        assert fresh.find(SECRET) == []
        assert fresh.user("and on") == 3


def test_an_origin_that_was_dropped_is_cleared_too(server: Server) -> None:
    talk, index = secretive(server)
    fork = talk.fork("fork")
    server.storage.drop("c")
    fork.pages.purge(index, "usr-1")
    assert not server.holds()
    assert new_talk(server.storage, "fork").check() == []


def test_a_backup_is_a_file_and_an_export_comes_back(server: Server, tmp_path: Path) -> None:
    talk = full_talk(server.storage, "谈话")
    talk.fork("fork").user("only here")
    done = quire.backup(server.storage, tmp_path / "copy.db")
    assert (done.contexts, done.problems) == (2, ())
    copy = quire.SQLiteStorage(tmp_path / "copy.db")
    for name in ("谈话", "fork"):
        assert contents(copy, name) == contents(server.storage, name)
    copy.close()
    library = Library(server.storage)
    library.export("fork", tmp_path / "fork.quire")
    library.import_(tmp_path / "fork.quire", "again")
    assert contents(server.storage, "again")[1] == contents(server.storage, "fork")[1]  # the head has the name
    assert library.usage("again").messages == library.usage("fork").messages
    assert list(library.list(prefix="f")) == ["fork"]


def test_a_doctor_looks_at_it(server: Server) -> None:
    full_talk(server.storage, "c").find("Seattle")
    found = quire.doctor(server.storage)
    assert found.healthy, found.symptoms
    assert found.contexts == 1
