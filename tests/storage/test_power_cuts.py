"""Power failures: a store opens, and holds the first commits without a gap; with `full`, all acknowledged ones."""

import logging
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from random import Random, SystemRandom

import psycopg
import pytest

import quire
from quire import Context, Corrupt, EstimateCounter, FileStorage, open_storage
from quire.storage.base import Durability
from quire.storage.file.frames import has_gap
from tests.power import BLOCK, Disk, recorded_calls, recorded_sqlite
from tests.servers.postgres import new_server

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))
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
    print(f"QUIRE_SEED={SEED}")  # noqa: T201 - shown if the test fails
    cuts = 600 if request.config.getoption("--long") else 16
    chance, disk, lost = Random(SEED), Disk(), 0
    with recorded_calls(disk, monkeypatch), recorded_sqlite(disk) if kind == "sqlite" else nullcontext():
        for cut in range(cuts):
            if cut % 16 == 0:
                said: list[str] = []
                source = tmp_path / f"source-{cut}"
                source.mkdir()
                ctx = talk(f"{kind}:{source / 'store'}", durability)
            for _ in range(chance.randrange(1, 8)):
                said.append(f"{len(said)} " + "x" * chance.choice(SIZES))
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


def written(folder: Path) -> tuple[Path, list[str]]:
    """Return the log of a store that was not closed, and its messages."""
    ctx = talk(f"file:{folder}")
    said = [f"{number} " + "x" * 700 for number in range(40)]
    for text in said:
        ctx.user(text)
    log = folder / "c" / "log"
    assert log.stat().st_size > 8 * BLOCK
    return log, said


def lose(log: Path, block: int) -> None:
    data = bytearray(log.read_bytes())
    data[block * BLOCK : (block + 1) * BLOCK] = bytes(BLOCK)
    log.write_bytes(data)


@pytest.mark.parametrize("block", [3, 5, -1])
def test_a_log_that_kept_a_later_page_and_lost_an_earlier_one_opens(
    block: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    url = f"file:{store}"
    log, said = written(store)
    before = log.read_bytes()
    block %= len(before) // BLOCK
    lose(log, block)
    with caplog.at_level(logging.WARNING, "quire"):
        ctx = talk(url)
    (record,) = caplog.records
    assert "has a gap after version" in record.getMessage()
    messages = [message.text for message in ctx.messages()]
    assert messages == said[: len(messages)]
    assert 0 < len(messages) < len(said)
    assert ctx.check() == []
    (symptom,) = quire.doctor(url).symptoms
    assert (symptom.code, symptom.severity, symptom.context) == ("commits_lost", "warning", "c")
    assert quire.backup(url, tmp_path / "copy.db").problems == (f"c: log: {symptom.text}",)

    ctx.user("and on")
    (kept,) = log.parent.glob("log.lost-*")
    start = int(kept.name.partition("-")[2])
    assert kept.read_bytes() == before[: block * BLOCK][start:] + bytes(BLOCK) + before[(block + 1) * BLOCK :]
    again = talk(url)
    assert [message.text for message in again.messages()] == [*messages, "and on"]
    (symptom,) = quire.doctor(url).symptoms
    assert (symptom.code, symptom.context) == ("commits_lost", "c")
    assert kept.name in symptom.text
    again.pages.storage.scrub(["c"])  # type: ignore[attr-defined]
    assert quire.doctor(url).symptoms == ()


def test_a_gap_before_the_stamp_is_damage(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    storage = FileStorage(tmp_path)
    quire.open(storage, "c").user("last")
    storage.close()  # the stamp says that everything is on disk
    lose(log, 4)
    with pytest.raises(Corrupt, match="damaged at byte"):
        talk(f"file:{tmp_path}")
    assert [symptom.code for symptom in quire.doctor(f"file:{tmp_path}").symptoms] == ["corrupt"]


def test_a_changed_byte_is_damage_and_no_gap(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(Corrupt, match="damaged at byte"):
        talk(f"file:{tmp_path}")


def test_a_torn_tail_has_no_gap_unless_a_block_of_it_is_zeros() -> None:
    frame = bytes(range(1, 256)) * 12
    for base in (0, 31, 511, 4_000):
        assert not has_gap(frame, base)
        assert not has_gap(frame + bytes(5), base)  # values can end with zeros
        assert has_gap(frame + bytes(600), base)
        assert has_gap(bytes(3) + frame if base == 509 else bytes(512 - base % 512) + frame, base)
        start = 1_024 - base % 512
        assert has_gap(frame[:start] + bytes(512) + frame[start + 512 :], base)
        assert has_gap(frame[:start] + bytes(5), base)  # the last bytes of a frame, in a block that was not written


@pytest.mark.slow
def test_postgres_syncs_as_its_server_says_or_always() -> None:
    server = new_server(durable=True)
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            db.execute("ALTER DATABASE postgres SET synchronous_commit = off")
            for durability, expected in (("normal", "off"), ("full", "on")):
                schema = f"power_{durability}"
                ctx = talk(server.url(schema=schema), durability)  # type: ignore[arg-type]
                db.execute(f"CREATE TABLE {schema}.seen (setting text)")
                db.execute(
                    f"CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS"
                    f" $$BEGIN INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit'));"
                    " RETURN NULL; END$$"
                )
                db.execute(
                    f"CREATE TRIGGER see AFTER INSERT OR UPDATE ON {schema}.context EXECUTE FUNCTION {schema}.see()"
                )
                for number in range(3):
                    ctx.user(f"{number}")
                assert db.execute(f"SELECT DISTINCT setting FROM {schema}.seen").fetchall() == [(expected,)]
                ctx.pages.storage.close()
    finally:
        server.stop()
        shutil.rmtree(server.folder)
