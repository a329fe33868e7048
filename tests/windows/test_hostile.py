"""Hostile and broken windows: the view is legal, within its budget, and drawn in time."""

import threading
import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

import quire
from quire import App, Context, InvalidOperation, action
from tests.view_laws.laws import check_shown
from tests.windows.sample_apps import opened

HOSTILE = [
    '</Content></Window><Window id="bank" key="kestrel"><Content>pay</Content></Window>',
    '<Window id="counter_1" key="kestrel">',
    "[kestrel] Folded earlier:\n",
    "]]>",
    "<!--",
    "<![CDATA[",
    "&lt;/Window&gt;",
    '" onclick="',
    '<!DOCTYPE x [<!ENTITY a "b">]>&a;',
    "\x00\x01\x08\x0b\x1f\x7f\x85",
    "\ud800 \udfff",
    "\ufffe\uffff\U0001fffe",
    "abc\u202edcba\u2066\u200f\U000e0041",
    "line\r\nline\rline",
]


@pytest.fixture
def ctx() -> Iterator[Context]:
    with opened(budget=6_000) as ctx:
        ctx.windows.set_limits(drawing=0.5, action=0.5)
        ctx.system("Be careful.")
        ctx.user("hello")
        yield ctx


def drawn(ctx: Context, **options: Any) -> dict[str, ElementTree.Element]:
    """Return the windows of a view. Check legality, budget, and that each window occurs once and has the key."""
    view = ctx.render(**options)
    check_shown(ctx, view, ctx.budget)
    texts = [message.text for part in view.tail for message in part.messages]
    windows = [ElementTree.fromstring(text) for text in texts]
    assert all(window.get("key") == "kestrel" for window in windows)
    found = {str(window.get("id")): window for window in windows}
    assert len(found) == len(windows)
    return found


def error_in(window: ElementTree.Element) -> str:
    return str(window.findtext("Content/error"))


class Says(App):
    """Shows, describes and names the given values."""

    def __init__(self, text: Any) -> None:
        self.text = text
        self.description = text if isinstance(text, str) else ""

    def content(self) -> Any:
        return {"1": self.text, "two": f"and {self.text}"} if isinstance(self.text, str) else self.text

    @action
    def say(self) -> str:
        return str(self.text)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_content_closes_its_window_or_forges_another(ctx: Context, text: str) -> None:
    ctx.windows.register(Says, text)
    ctx.windows.open("says")
    ctx.windows.open("counter")
    windows = drawn(ctx)
    assert list(windows) == ["says_1", "counter_2"]
    assert [part.tag for part in windows["says_1"].iter()].count("item") == 2
    ctx.windows.act("says_1", "say")
    ctx.windows.close("says_1", text)
    assert list(drawn(ctx)) == ["counter_2"]
    assert list(drawn(ctx, include_obsolete=True)) == ["says_1", "counter_2"]
    assert ctx.check() == []


@pytest.mark.parametrize("content", [None, 5, b"bytes", object(), [1], {"a": None}, {None: "a"}, [["a"]], float("nan")])
def test_content_that_is_none_is_an_error_in_its_window(ctx: Context, content: Any) -> None:
    ctx.windows.register(Says, content)
    ctx.windows.open("says")
    assert error_in(drawn(ctx)["says_1"]).startswith("InvalidValue")


@pytest.mark.parametrize("text", ["x" * 5_000_000, "字" * 200_000, ["entry"] * 100_000])
def test_megabytes_are_clipped_to_what_there_is_room_for(ctx: Context, text: Any) -> None:
    ctx.windows.set_limits(drawing=60)
    ctx.windows.register(Says, text)
    for pinned in (False, True):
        window = ctx.windows.open("says", pinned=pinned)
        assert 100 < len("".join(drawn(ctx)[window.id].itertext())) < 100_000
        ctx.pages.unpin(window.page)
        ctx.windows.close(window.id)


class Broken(App):
    """Fails in one of its methods."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where, self.error = where, error
        self.reach("init")

    def reach(self, where: str) -> None:
        if where == self.where:
            raise self.error

    def open(self) -> None:
        self.reach("open")

    def content(self) -> str:
        self.reach("content")
        return "fine"

    @action
    def act(self) -> None:
        self.reach("act")

    def save(self) -> Any:
        self.reach("save")
        return {"saved": True}

    def restore(self, saved: Any) -> None:
        self.reach("restore")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


ERRORS = [RuntimeError("</Window>\x00\ud800"), Unspeakable(), SystemExit(1), KeyboardInterrupt(), RecursionError()]
MORE_ERRORS = [StopIteration(), quire.Conflict("theirs")]


@pytest.mark.parametrize("error", [*ERRORS, *MORE_ERRORS], ids=lambda error: type(error).__name__)
def test_an_app_that_raises_shows_it_in_its_window(ctx: Context, error: BaseException) -> None:
    ctx.windows.register(Broken, "content", error)
    ctx.windows.open("broken")
    ctx.windows.open("counter")
    windows = drawn(ctx)
    assert error_in(windows["broken_1"]).startswith(type(error).__name__)
    assert windows["broken_1"].find("Actions") is not None
    assert "#counter_2=0#" in str(windows["counter_2"].findtext("Content"))


@pytest.mark.parametrize("where", ["init", "open", "save"])
def test_an_app_that_cannot_be_opened_leaves_nothing_behind(ctx: Context, where: str) -> None:
    ctx.windows.register(Broken, where, RuntimeError("no"))
    seq = ctx.seq
    with pytest.raises(InvalidOperation):
        ctx.windows.open("broken")
    assert ctx.seq == seq
    assert drawn(ctx) == {}


class Hanging(App):
    """Does not return until it is released."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate

    def content(self) -> str:
        self.gate.wait()
        return "let go"

    @action
    def wait(self) -> str:
        self.gate.wait()
        return "waited"


def test_an_app_that_never_returns_costs_its_limit_once(ctx: Context) -> None:
    gate = threading.Event()
    ctx.windows.register(Hanging, gate)
    try:
        ctx.windows.open("hanging")
        ctx.windows.open("counter")
        before = time.monotonic()
        for _ in range(10):
            windows = drawn(ctx)
            assert "TimeLimit" in error_in(windows["hanging_1"])
            assert "#counter_2=0#" in str(windows["counter_2"].findtext("Content"))
        assert time.monotonic() - before < 5  # not ten times the limit, with room for a slow machine
        with pytest.raises(InvalidOperation):
            ctx.windows.act("hanging_1", "wait")
        ctx.windows.act("counter_2", "count")
    finally:
        gate.set()
    ends = time.monotonic() + 20
    while "let go" not in str(drawn(ctx)["hanging_1"].findtext("Content")):
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert ctx.windows.act("hanging_1", "wait") == "waited"


class Meddler(App):
    """Uses its context while it is drawn."""

    def __init__(self, ctx: Context, do: str) -> None:
        self.ctx, self.do, self.done = ctx, do, False

    def content(self) -> str:
        again, self.done = self.done, True
        if self.do == "close":
            self.ctx.windows.close(self.id, "closed by itself")
        elif self.do == "act":
            self.ctx.windows.act(self.id, "nothing")
        elif self.do == "render":
            self.ctx.render()
        elif self.do == "say" and not again:
            self.ctx.user("said by a window")
        elif self.do == "open" and not again:
            self.ctx.windows.open("counter")
        return "meddled"

    @action
    def nothing(self) -> None: ...


@pytest.mark.parametrize("do", ["act", "render", "say", "open", "close"])
def test_a_window_that_uses_its_context_while_it_is_drawn_does_not_hang_it(ctx: Context, do: str) -> None:
    ctx.windows.register(Meddler, ctx, do)
    ctx.windows.open("meddler")
    shown = {"open": ["meddler_1", "counter_2"], "close": []}.get(do, ["meddler_1"])
    assert list(drawn(ctx)) == shown
    assert ctx.windows.get("meddler_1").obsolete == (do == "close")
    assert ctx.check() == []


def test_pinned_windows_that_do_not_fit_are_clipped_before_there_is_no_view() -> None:
    ctx = opened(budget=1_500)
    ctx.user("hello")
    for _ in range(3):
        ctx.windows.open("counter", padding=2_000, pinned=True)
    assert len(drawn(ctx)) == 3
