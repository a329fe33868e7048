"""The Agents SDK's session: it returns its items, is cleared and filled in one commit, and drawn within a budget."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from agents.extensions.memory import EncryptedSession
from agents.memory import Session, SessionSettings

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


@pytest.fixture
def session(tmp_path: Path) -> Iterator[QuireSession]:
    made = QuireSession("s", tmp_path / "a.db", budget=BUDGET)
    yield made
    made.close()


def test_it_is_a_session_of_the_sdk(session: QuireSession) -> None:
    kept: Session = session
    assert isinstance(kept, Session)
    assert session.session_settings == SessionSettings()


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


def test_items_are_popped_one_by_one(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        for left in range(len(HISTORY) - 1, -1, -1):
            assert await session.pop_item() == HISTORY[left]
            assert await items_of(session) == HISTORY[:left]
            assert session.context.check() == []
        assert await session.pop_item() is None

    run(work())


@pytest.mark.parametrize("seed", range(4))
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


def test_the_newest_items_are_those_of_the_settings(tmp_path: Path) -> None:
    async def work() -> None:
        session = QuireSession("s", tmp_path / "a.db", session_settings=SessionSettings(limit=3))
        await add(session, *HISTORY)
        assert await items_of(session) == HISTORY[-3:]
        assert await items_of(session, 5) == HISTORY[-5:]
        session.close()

    run(work())


def test_a_clear_is_stored_when_it_returns(session: QuireSession, tmp_path: Path) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        before = session.context.seq
        await session.clear_session()
        with quire.open(tmp_path / "a.db", "s") as other:
            assert len(other.messages()) == 0
            assert other.seq == before + 1
        session.context.undo(session.context.seq)
        assert await items_of(session) == HISTORY
        await session.clear_session()
        before = session.context.seq
        await session.clear_session()  # there is nothing to clear
        assert session.context.seq == before

    run(work())


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


def test_the_output_of_a_local_shell_belongs_to_its_call(session: QuireSession) -> None:
    call = {"type": "local_shell_call", "id": "l1", "call_id": "c1", "action": {"type": "exec"}, "status": "completed"}
    output = {"type": "local_shell_call_output", "call_id": "c1", "output": "a.txt"}

    async def work() -> None:
        await add(session, said("list it"), call, output)
        assert await items_of(session) == [said("list it"), call, output]
        assert [message.role for message in session.context.messages()] == ["user", "assistant", "tool"]
        assert session.context.render().responses()[-2:] == [call, output]

    run(work())


def test_the_work_for_an_item_does_not_grow_with_the_list() -> None:
    def calls_for(number: int) -> int:
        session = QuireSession(f"of {number}", "memory:")
        talk = [{"role": role, "content": f"{n}"} for n in range(number // 2) for role in ("user", "assistant")]
        session._add([{"role": "user", "content": "Hello"}])
        found = 0

        def count(*_: Any) -> None:
            nonlocal found
            found += 1

        sys.setprofile(count)
        try:
            session._add(talk)
        finally:
            sys.setprofile(None)
        return found

    assert calls_for(800) < 10 * calls_for(100)


def test_the_same_result_twice_stays_twice(session: QuireSession) -> None:
    items = [said("look"), called("c1"), result("c1", "x"), result("c1", "x"), result("c1", "y")]

    async def work() -> None:
        await add(session, *items)
        assert await items_of(session) == items
        assert quire.check_legal(session.context.render().responses(), "responses") == []

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


def test_a_replacement_with_a_wrong_item_changes_nothing(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, *HISTORY)
        before = session.context.seq
        for wrong in ("no item", 5, None, {"x": object()}):
            with pytest.raises(quire.InvalidValue, match=r"items\[1\]"):
                await session._atomic_replace_items(cast(Any, [said("fine"), wrong]))
            with pytest.raises(quire.InvalidValue, match=r"items\[1\]"):
                await add(session, said("fine"), cast(Item, wrong))
        assert await items_of(session) == HISTORY
        assert session.context.seq == before
        await session._atomic_replace_items([])
        assert await items_of(session) == []

    run(work())


def test_a_broken_list_is_taken_in_and_shown_legally(session: QuireSession) -> None:
    async def work() -> None:
        await add(session, said("hello"), result("lost", "42"), called("c1"), said("and?"), result("c1", "late"))
        assert [item.get("content") for item in await items_of(session) if "role" in item] == ["hello", "and?"]
        assert result("lost", "42") in await items_of(session)
        assert quire.check_legal(session.context.render().responses(), "responses") == []
        assert "42" in [message.text for message in session.context.messages(all=True)]

    run(work())


def test_the_developers_prompt_is_no_item(session: QuireSession) -> None:
    async def work() -> None:
        session.context.system("You are careful.")
        await add(session, said("hello"))
        assert await items_of(session) == [said("hello")]
        await session.clear_session()
        session.close()
        assert [message.text for message in session.context.messages()] == ["You are careful."]
        assert await session.pop_item() is None

    run(work())


def test_sessions_at_one_place_share_its_connection(tmp_path: Path) -> None:
    sessions = [QuireSession(f"user-{n}", tmp_path / "a.db") for n in range(50)]

    async def work() -> None:
        await asyncio.gather(*(add(one, said(one.session_id)) for one in sessions))
        assert len({id(one.context.pages.storage) for one in sessions}) == 1
        assert [await items_of(one) for one in sessions] == [[said(f"user-{n}")] for n in range(50)]

    run(work())
    storage = sessions[0].context.pages.storage
    for one in sessions:
        one.close()
    with pytest.raises(quire.StorageClosed):
        storage.head("user-1")
    assert run(items_of(sessions[3])) == [said("user-3")]  # opened again
    sessions[3].close()


def test_a_context_or_a_storage_can_be_given() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage, "s")
    session = QuireSession("s", ctx)
    run(add(session, said("hello")))
    assert session.context is ctx
    assert run(items_of(QuireSession("s", storage))) == [said("hello")]
    with pytest.raises(quire.InvalidValue, match="budget"):
        QuireSession("s", ctx, budget=7)
    with pytest.raises(quire.InvalidValue, match="Context name"):
        QuireSession("", storage)
