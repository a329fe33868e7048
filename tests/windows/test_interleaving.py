"""Any order of opens, actions, refreshes, closes, undos, restarts and folds: views show the open windows, up to date.

A plain model of the context knows the open windows and the content of each. After every step the view is legal for
every provider and within its budget. It shows only open windows, each once and with its current content. If there is
room, it shows all of them, in the order of their places.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import quire
from quire import Context, InvalidOperation, View
from tests.view_laws.laws import Forms, check_legality, check_size
from tests.windows.sample_apps import Counter

BUDGET = 1_600
ROOMY = 1_000_000
KEY = "kestrel"


class Interleaving(RuleBasedStateMachine):
    """A context with counters, and a plain dict of their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.ctx = self.open()
        self.model: dict[str, tuple[int, int]] = {}  # by open window: its number and its place
        self.before: list[tuple[int, dict[str, tuple[int, int]]]] = []
        self.closed: set[str] = set()

    def open(self) -> Context:
        ctx = quire.open(Path(self.folder.name) / "agent.db", budget=BUDGET, key=KEY)
        ctx.windows.register(Counter)
        return ctx

    def teardown(self) -> None:
        self.ctx.close()
        self.folder.cleanup()

    @initialize()
    def start(self) -> None:
        self.ctx.system("Count with care.")
        self.ctx.user("begin")

    def noted(self) -> None:
        """Store the model before the next entry."""
        self.before.append((self.ctx.seq, dict(self.model)))

    def pick(self, number: int) -> str:
        return sorted(self.model)[number % len(self.model)]

    @rule(start=st.integers(0, 9), padding=st.sampled_from([0, 20, 200]), options=st.integers(0, 7))
    def open_one(self, start: int, padding: int, options: int) -> None:
        self.noted()
        window = self.ctx.windows.open(
            "counter", start=start, padding=padding, important=options & 1 == 1, append=options & 2 == 2
        )
        self.model[window.id] = (start, self.ctx.seq)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 99), by=st.integers(-3, 3))
    def act(self, number: int, by: int) -> None:
        self.noted()
        window = self.pick(number)
        self.ctx.windows.act(window, "count", by=by)
        count, place = self.model[window]
        self.model[window] = (count + by, place)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 99))
    def renew(self, number: int) -> None:
        self.noted()
        window = self.pick(number)
        appends = self.ctx.windows.get(window).append
        self.ctx.windows.act(window, "renew")
        count, place = self.model[window]
        self.model[window] = (count + 1, self.ctx.seq if appends else place)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 99), append=st.booleans())
    def refresh(self, number: int, append: bool) -> None:
        self.noted()
        window = self.pick(number)
        self.ctx.windows.refresh(window, append=append)
        count, place = self.model[window]
        self.model[window] = (count, self.ctx.seq if append else place)

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 99), summary=st.sampled_from([None, "done", "完成 <b>"]), by_action=st.booleans())
    def close(self, number: int, summary: str | None, by_action: bool) -> None:
        self.noted()
        window = self.pick(number)
        if by_action:
            self.ctx.windows.act(window, "finish")
            self.before.clear()  # two entries: undoing only the last one is not tested here
        else:
            self.ctx.windows.close(window, summary)
        del self.model[window]

    @precondition(lambda self: self.model)
    @rule(number=st.integers(0, 99))
    def fail(self, number: int) -> None:
        try:
            self.ctx.windows.act(self.pick(number), "fail")
        except quire.InvalidOperation:
            return
        raise AssertionError("it should have failed")

    @rule(words=st.sampled_from([5, 60, 400]), calls=st.booleans())
    def talk(self, words: int, calls: bool) -> None:
        self.before.clear()
        self.ctx.user("please " + "tell me more about it " * (words // 5))
        if calls:
            self.ctx.assistant(None, [quire.ToolCall(f"c{self.ctx.seq}", "look", "{}")])
            if words != 5:
                self.ctx.tool_result(self.ctx.pending_calls()[0].id, "found " * words)
        else:
            self.ctx.assistant("answer " * words)

    @precondition(lambda self: self.before and self.before[-1][0] < self.ctx.seq)
    @rule()
    def undo(self) -> None:
        seq, model = self.before.pop()
        if seq != self.ctx.seq - 1:  # a fold happened in between
            self.before.clear()
            return
        self.before.clear()
        try:
            self.ctx.undo(self.ctx.seq)
        except InvalidOperation as error:
            if "it only opened" not in error.fact:  # a line of the layout that was opened cannot be closed by undo
                raise
            assert self.model == model
        self.model = model

    @rule()
    def restart(self) -> None:
        self.ctx.close()
        self.ctx = self.open()

    @rule(windows=st.sampled_from(["tail", "inline"]), max_tokens=st.sampled_from([None, 1_200, 3_000]))
    def draw(self, windows: Literal["tail", "inline"], max_tokens: int | None) -> None:
        view = self.ctx.render(windows=windows, max_tokens=max_tokens)
        self.check(view, max_tokens or BUDGET)

    @invariant()
    def what_is_shown_is_what_is_open(self) -> None:
        self.check(self.ctx.render(), BUDGET)
        view = self.ctx.render(max_tokens=ROOMY)
        self.check(view, ROOMY)
        shown = [window.get("id") for window in windows_of(view)]
        assert shown == sorted(self.model, key=lambda window: self.model[window][1])
        assert [window.id for window in self.ctx.windows.list()] == shown

    @invariant()
    def items_say_the_same(self) -> None:
        windows = [item for item in self.ctx.items() if item.type == "Window"]
        assert {item.content for item in windows if not item.obsolete} == set(self.model)
        assert self.ctx.stats().window_items == len(self.model)

    def check(self, view: View, room: int) -> None:
        """Check the laws of one view: size, legality, and only open windows, each once and current."""
        forms = Forms(view)
        check_size(view, forms, room)
        check_legality(forms)
        windows = windows_of(view)
        ids = [str(window.get("id")) for window in windows]
        assert len(set(ids)) == len(ids)
        for name, window in zip(ids, windows, strict=True):
            assert name in self.model, f"{name} is not open"
            said = "".join(window.itertext())
            assert f"#{name}={self.model[name][0]}#" in said or "not shown" in said
            assert window.get("obsolete") is None


def windows_of(view: View) -> list[ElementTree.Element]:
    texts = [message.text for part in view.parts if part.kind == "window" for message in part.messages]
    texts = [text for text in texts if " more windows, " not in text]
    windows = [ElementTree.fromstring(text) for text in texts]
    assert all(window.get("key") == KEY for window in windows)
    return windows


TestInterleaving = Interleaving.TestCase
TestInterleaving.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_view_that_misses_a_window_or_shows_an_old_one_is_found() -> None:
    """Proof that the machine can fail."""
    machine = Interleaving()
    try:
        machine.start()
        machine.open_one(start=1, padding=0, options=0)
        machine.what_is_shown_is_what_is_open()
        for wrong in ({}, {"counter_1": (2, 4)}, {"counter_1": (1, 4), "counter_2": (0, 5)}):
            assert finds(machine, wrong), wrong
    finally:
        machine.teardown()


def finds(machine: Interleaving, model: Mapping[str, Any]) -> bool:
    machine.model = dict(model)
    try:
        machine.what_is_shown_is_what_is_open()
    except AssertionError:
        return True
    return False
