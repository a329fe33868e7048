"""The example service with real processes: workers are killed at random; nothing is lost, nothing is doubled."""

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from service import app, load

import quire
from tests.marks import servers
from tests.seeds import SEED
from tests.servers.postgres import postgres_url
from tests.service_workers import BUDGET, IN_FLIGHT, USERS, WORKERS, Workers, answer, count_losses
from tests.strict_provider.requests import State
from tests.strict_provider.server import StrictProvider


@pytest.fixture(params=[pytest.param("sqlite", marks=[pytest.mark.slow, pytest.mark.servers]), *servers("postgres")])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "service.db") if request.param == "sqlite" else postgres_url()


def test_killed_workers_lose_and_double_nothing(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    long = bool(request.config.getoption("--long"))
    users, count, turns = (USERS, WORKERS, 10_000) if long else (40, 2, 1)
    chance = random.Random(SEED)
    with StrictProvider(State(limit=BUDGET + 100), answer) as provider:
        workers = Workers(store, provider, tmp_path, count)
        ended = threading.Event()

        def disturb() -> None:
            while (long or workers.kills < 2) and not ended.wait(chance.uniform(0.5, 2.0)):
                workers.kill(chance.randrange(count))

        killer = threading.Thread(target=disturb)
        killer.start()
        try:
            until = time.monotonic() + 300 if long else None
            done = asyncio.run(load.run(workers.urls, users, IN_FLIGHT, turns, until=until, seed=SEED))
        finally:
            ended.set()
            killer.join()
        workers.wait()
        asyncio.run(load.run(workers.urls[:1], 1, 1, 1))  # "user-0-0" again, which was answered
        text = httpx.get(f"{workers.urls[0]}/metrics").text
        memory = workers.memory()
        workers.stop()
        assert provider.refused == []
    assert done.failures == []
    assert workers.kills
    assert 'quire_turns_total{outcome="finished"}' in text
    assert max(memory) < 400_000_000
    assert len(done.answered) == users
    assert count_losses(store, done.answered) == (0, 0)


def text_of(events: str) -> str:
    """Return the text of server-sent events."""
    data = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: ")]
    return "".join(one.get("text", "") for one in data)


@pytest.mark.servers  # the service has vectors, which need numpy
def test_a_repeated_request_gets_the_same_answer_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    store = str(tmp_path / "service.db")
    with StrictProvider(State(), answer) as provider:
        workers = Workers(store, provider, tmp_path, 1)
        url = f"{workers.urls[0]}/chat/ada"
        body = {"id": "r1", "text": "What is the status of order W0001?"}
        first = httpx.post(url, json=body, timeout=30)
        between = httpx.post(url, json={"id": "r0", "text": "Thank you."}, timeout=30)
        second = httpx.post(url, json=body, timeout=30)
        expected = "The shop says: Order W0001 left the warehouse this morning."
        assert text_of(first.text) == text_of(second.text) == expected
        assert text_of(between.text) != expected
        assert first.text.endswith("event: done\ndata: {}\n\n")
        for wrong in ({"id": "r2"}, {"id": 7, "text": "x"}, {"id": "r2", "text": ""}, [1]):
            assert httpx.post(url, json=wrong).status_code == 400
        workers.stop()
    with quire.open(store, "ada", create=False) as ctx:
        answered = ["user", "assistant", "tool", "assistant"]
        assert [message.role for message in ctx.messages()] == ["system", *answered, *answered]


@pytest.mark.parametrize(("error", "retry"), [(quire.Busy("busy"), True), (quire.QuotaExceeded("no"), False)])
def test_an_error_is_an_event_that_says_if_a_retry_may_help(error: quire.QuireError, retry: bool) -> None:
    async def fail() -> AsyncIterator[str]:
        yield "So far "
        raise error

    async def collect() -> list[str]:
        return [event async for event in app.events(fail())]

    (_, last) = asyncio.run(collect())
    assert json.loads(last.split("data: ")[1]) == {"code": error.code, "error": str(error), "retry": retry}
