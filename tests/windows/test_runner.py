"""Running apps: errors and hangs stay inside an app, and async works everywhere."""

import asyncio
import threading
from typing import Any

import pytest

from quire.windows.runner import Job, Outcome, Runner, TimeLimit


def failing() -> None:
    raise KeyError("broken")


def test_values_and_errors_come_back_in_order() -> None:
    found = Runner().run([Job(lambda: 1), Job(failing), Job(lambda: "字")])
    assert found[0] == Outcome(1)
    assert isinstance(found[1].error, KeyError)
    assert found[2] == Outcome("字")
    assert Runner().run([]) == []


def test_a_call_that_never_returns_is_late_and_the_others_are_not() -> None:
    stop = threading.Event()
    runner = Runner(limit=0.5)
    try:
        found = runner.run([Job(lambda: 1), Job(stop.wait), Job(lambda: 3)])
        assert [outcome.value for outcome in found] == [1, None, 3]
        assert isinstance(found[1].error, TimeLimit)
        assert runner.run([Job(lambda: 4)], limit=30)[0].value == 4
    finally:
        stop.set()


def test_many_calls_that_never_return_do_not_add_up() -> None:
    stop = threading.Event()
    try:
        found = Runner(limit=0.05).run([Job(stop.wait) for _ in range(50)])
        assert len(found) == 50
        assert all(isinstance(outcome.error, TimeLimit) for outcome in found)
        assert "other windows" in str(found[-1].error)
    finally:
        stop.set()


def test_a_second_call_for_one_that_hangs_does_not_wait() -> None:
    stop, lock, runner = threading.Event(), threading.Lock(), Runner(limit=0.1)
    begun: list[int] = []
    try:
        runner.run([Job(stop.wait, lock)])
        found = runner.run([Job(lambda: begun.append(1), lock)], limit=30)
        assert isinstance(found[0].error, TimeLimit)
        assert "earlier call" in str(found[0].error)
        assert begun == []
    finally:
        stop.set()
    assert lock.acquire(timeout=30)  # it returned and released the lock
    lock.release()
    runner.run([Job(lambda: begun.append(2), lock, patience=30)], limit=30)
    assert begun == [2]


def test_coroutines_wait_side_by_side() -> None:
    meeting: list[int] = []

    async def met(number: int) -> int:
        meeting.append(number)
        while len(meeting) < 3:
            await asyncio.sleep(0.001)
        return number

    found = Runner(limit=30).run([Job(lambda n=n: met(n)) for n in range(3)])  # type: ignore[misc]
    assert [outcome.value for outcome in found] == [0, 1, 2]


def test_a_coroutine_that_hangs_is_cancelled_and_the_loop_lives() -> None:
    cancelled = threading.Event()

    async def hanging() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def quick() -> str:
        return "quick"

    runner, lock = Runner(limit=0.5), threading.Lock()
    found = runner.run([Job(hanging, lock), Job(quick)])
    assert isinstance(found[0].error, TimeLimit)
    assert found[1].value == "quick"
    assert cancelled.wait(30)
    assert lock.acquire(timeout=30)
    assert runner.run([Job(quick)], limit=30)[0].value == "quick"


def test_a_coroutine_that_blocks_the_loop_costs_only_itself() -> None:
    stop = threading.Event()

    async def blocking() -> None:
        stop.wait()

    async def quick() -> str:
        return "quick"

    runner = Runner(limit=0.1)
    try:
        assert isinstance(runner.run([Job(blocking)])[0].error, TimeLimit)
        assert runner.run([Job(quick)], limit=30)[0].value == "quick"
    finally:
        stop.set()


def test_async_apps_run_where_an_event_loop_is_running() -> None:
    async def value() -> int:
        await asyncio.sleep(0)
        return 7

    async def caller() -> list[Outcome]:
        return Runner().run([Job(value)])

    assert asyncio.run(caller())[0].value == 7


def test_an_app_that_runs_another_is_not_in_its_own_way() -> None:
    runner = Runner(limit=30)

    def outer() -> Any:
        return runner.run([Job(lambda: "inner")])[0].value

    assert runner.run([Job(outer)])[0].value == "inner"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_not_even_an_exit_leaves_its_window(error: BaseException) -> None:
    def leaving() -> None:
        raise error

    assert Runner().run([Job(leaving)])[0].error is error


def test_threads_that_wait_for_work_end_when_they_are_sent_to_rest() -> None:
    runner = Runner()
    thread = runner.run([Job(threading.current_thread)])[0].value
    assert runner.run([Job(threading.current_thread)])[0].value is thread
    runner.stop_threads()
    thread.join(10)
    assert not thread.is_alive()
    assert runner.run([Job(lambda: 5)])[0].value == 5
