"""Power failures: a store opens, and holds the first commits without a gap; with `full`, all acknowledged ones."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, Literal

import psycopg
import pytest

import quire
from quire import Context, EstimateCounter, open_storage
from tests.power import Disk, recorded_calls, recorded_sqlite
from tests.seeds import SEED
from tests.servers.postgres import new_server

Durability = Literal["normal", "full"]
SIZES = (5, 50, 400, 3_000, 20_000)


def talk(url: str, durability: Durability = "normal") -> Context:
    return quire.open(open_storage(url, durability=durability), "c", counter=EstimateCounter())


@pytest.mark.parametrize("durability", ["normal", "full"])
@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_power_failure_loses_at_most_the_last_commits(
    kind: str,
    durability: Durability,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    cuts = 600 if request.config.getoption("--long") else 6
    chance, disk, lost = Random(SEED), Disk(), 0
    with recorded_calls(disk, monkeypatch), recorded_sqlite(disk) if kind == "sqlite" else nullcontext():
        for cut in range(cuts):
            if cut % 16 == 0:
                said: list[str] = []
                source = tmp_path / f"source-{cut}"
                source.mkdir()
                ctx = talk(f"{kind}:{source / 'store'}", durability)
            for _ in range(chance.randrange(1, 8)):
                said.append(f"{len(said)} " + chance.choice("x\0") * chance.choice(SIZES))
                ctx.user(said[-1])
            target = tmp_path / f"cut-{cut}"
            disk.fail(source, target, chance)
            found = talk(f"{kind}:{target / 'store'}", durability)
            messages = [message.text for message in found.messages()]
            assert messages == said[: len(messages)]
            assert durability == "normal" or messages == said
            lost += len(said) - len(messages)
            assert found.check() == []
            found.user("and on")
            assert len(talk(f"{kind}:{target / 'store'}").messages()) == len(messages) + 1
            symptoms = {symptom.code for symptom in quire.doctor(found.pages.storage).symptoms}
            assert symptoms <= {"commits_lost"}
            found.pages.storage.close()
            shutil.rmtree(target)
    assert (lost > 0) is (durability == "normal")


def watch(db: psycopg.Connection[Any], schema: str) -> None:
    """Let each table note the setting with which it is written."""
    found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    db.execute(f"CREATE TABLE {schema}.seen (setting text)")
    db.execute(
        f"CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        f" INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$"
    )
    for (table,) in found:
        db.execute(f"CREATE TRIGGER see AFTER INSERT OR UPDATE ON {schema}.{table} EXECUTE FUNCTION {schema}.see()")


@pytest.mark.servers
@pytest.mark.slow
def test_postgres_syncs_as_its_server_says_or_always() -> None:
    server = new_server(durable=True)
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("ALTER DATABASE postgres SET synchronous_commit = off")
            settings: dict[Durability, str] = {"normal": "off", "full": "on"}
            for durability, expected in settings.items():
                schema = f"power_{durability}"
                ctx = talk(server.url(schema=schema), durability)
                watch(db, schema)
                for number in range(3):
                    ctx.user(f"{number}")
                assert db.execute(f"SELECT DISTINCT setting FROM {schema}.seen").fetchall() == [(expected,)]
                ctx.pages.storage.close()
    finally:
        server.stop()
        shutil.rmtree(server.folder)
