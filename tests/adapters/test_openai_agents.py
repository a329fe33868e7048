"""The Agents SDK's session: it returns its items, is cleared and filled in one commit, and drawn within a budget."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

pytest.importorskip("agents")
from agents.extensions.memory import EncryptedSession

import quire
from quire.adapters.openai_agents import QuireSession
from tests.adapters.agents_sdk_items import (
    BUDGET,
    HISTORY,
    Item,
    add,
    answer,
    called,
    items_of,
    result,
    run,
    said,
    thought,
)
from tests.marks import long

pytestmark = pytest.mark.clients


@pytest.fixture
def session(tmp_path: Path) -> Iterator[QuireSession]:
    made = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
    yield made
    made.close()


def test_items_go_back_as_they_came(session: QuireSession, tmp_path: Path) -> None:
    async def work() -> None:
        for item in HISTORY:
            await add(session, item)
        assert await items_of(session) == HISTORY
        await session.clear_session()
        await add(session, *HISTORY)
        assert await items_of(session) == HISTORY
        for limit in range(1, len(HISTORY) + 2):
            assert await items_of(session, limit) == HISTORY[-limit:]
        assert await items_of(session, 0) == []
        again = QuireSession("s", tmp_path / "a.db")
        assert await items_of(again) == HISTORY
        again.close()

    run(work())


@pytest.mark.parametrize("seed", [0, *long(*range(1, 20))])
def test_it_equals_a_plain_list(seed: int, tmp_path: Path) -> None:
    """Any calls in any order, compared with a plain list; sometimes through another object, or after a restart."""
    random, kept = Random(seed), list[Item]()

    async def work() -> None:
        session = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
        for step in range(40):
            match random.randrange(8):
                case 0:
                    popped = await session.pop_item()
                    assert popped == (kept.pop() if kept else None)
                case 1 if step > 20:
                    await session.clear_session()
                    kept.clear()
                case 2:
                    session.close()
                    session = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
                case 3:
                    session.context.render()
                case _:
                    fresh = _turn(random, step)
                    await add(session, *fresh)
                    kept.extend(fresh)
            limit = random.choice([None, 1, 2, 5, 30])
            assert await items_of(session, limit) == (kept if limit is None else kept[-limit:]), f"seed {seed}"
        session.close()

    run(work())


def _turn(random: Random, step: int) -> list[Item]:
    call = f"call-{step}"
    return random.choice(
        [
            [said(f"question {step}")],
            [thought(step), called(call), result(call, "结果 " * random.randrange(40))],
            [thought(step), answer(f"answer {step} " * random.randrange(1, 60), step)],
            [said(f"q {step}"), answer("a", step)],
            [called(call), called(f"{call}b"), result(f"{call}b", "2"), result(call, "1")],
            [random.choice(ANY_SHAPE)],
            [called(call), random.choice(ANY_SHAPE[:5]), result(call, "1")],
        ]
    )


ANY_SHAPE: list[Item] = [
    {"a": 1},
    {"a": 2},
    {},
    {"type": 7},
    {"type": None},
    {"type": "message", "content": "no role"},
    {"type": "new_in_2027", "x": [1]},
    {"id": "msg_7"},
    {"role": "nobody", "content": 5},
    {"role": "user", "content": {"x": [1, None]}},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": [{"type": "new"}]},
    {"type": "function_call"},
    {"type": "function_call", "call_id": 5, "name": ["x"], "arguments": {}},
    {"type": "function_call_output"},
    {"type": "function_call_output", "call_id": "unknown", "output": "42"},
    {"type": "local_shell_call_output", "call_id": "unknown"},
    {"type": "local_shell_call_output", "id": "unknown", "output": "x"},
    {"__enc__": 1, "v": 1, "kid": "k", "payload": "gAAA" * 50},
]


@pytest.mark.parametrize("at_once", [True, False])
def test_items_of_any_shape_go_back_as_they_came(session: QuireSession, tmp_path: Path, at_once: bool) -> None:
    async def work() -> None:
        for items in [ANY_SHAPE] if at_once else [[item] for item in ANY_SHAPE]:
            await add(session, *items)
        assert await items_of(session) == ANY_SHAPE
        for limit in range(len(ANY_SHAPE) + 2):
            assert await items_of(session, limit) == (ANY_SHAPE[-limit:] if limit else [])
        again = QuireSession("s", tmp_path / "a.db")
        for left in range(len(ANY_SHAPE) - 1, 5, -1):
            assert await again.pop_item() == ANY_SHAPE[left]
            assert await items_of(again) == ANY_SHAPE[:left]
        sent = again.context.render().responses()
        assert {"a": 1} not in sent
        assert quire.check_legal(sent, "responses") == []
        assert again.context.check() == []
        await again.clear_session()
        assert await items_of(again) == []
        again.close()

    run(work())


def test_a_session_can_be_encrypted(session: QuireSession) -> None:
    async def work() -> None:
        encrypted = EncryptedSession("s", cast(Any, session), encryption_key="a key of some length")
        for item in HISTORY:
            await encrypted.add_items([cast(Any, item)])
        assert await encrypted.get_items() == HISTORY
        assert await encrypted.pop_item() == HISTORY[-1]
        assert await encrypted.get_items(3) == HISTORY[-4:-1]
        assert "HAT136" not in str(await items_of(session))
        assert "payload" not in str(session.context.render().responses())

    run(work())


def test_the_result_of_a_popped_call_stays_an_item(session: QuireSession) -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result: Item = {"type": "function_call_output", "call_id": "c", "output": "r"}
    asked: Item = {"role": "user", "content": "go"}

    async def work() -> None:
        await add(session, asked, call)
        assert [await session.pop_item()] == [call]
        await add(session, result)
        assert await items_of(session) == [asked, result]
        assert result not in session.context.render().responses()
        await add(session, call, result)
        assert await items_of(session) == [asked, result, call, result]
        assert quire.check_legal(session.context.render().responses(), "responses") == []
        assert session.context.check() == []

    run(work())
