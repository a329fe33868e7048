"""Two contexts that differ only in PRIVATE pages: an agent gets the same bytes from both, for every request."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire import AgentContext, Context, ContextSystem, Permission, QuireError, Quota, Segment, SegmentType, Tools
from tests.books import WordCounter
from tests.whole_values import whole_repr

WORDS = ("seat", "window", "flight HAT7", "座位", "靠窗的座位", "budget 300", "key")
INDICES = (
    *(f"{segment}-{number}" for segment in ("mem", "usr") for number in range(5)),
    *("sys-0", "sys-1", "win-0", "vault-0", "vault-1", "vault-2", "safe-0", "safe-1"),
    *("VAULT-1", "vault-01", " vault-1", "MEM-1", "nowhere-1", "vault", "-1", "", "a00000000-0"),
)

SEGMENTS = ("sys", "mem", "usr", "win", "vault", "safe", "VAULT", "nowhere", "")
BUDGET = 400
_ENTRY = re.compile(r"by entry \d+\)\. undo\(\d+\)")


class World(NamedTuple):
    """One context with an agent that manages segments, its tools, and whether it has secrets."""

    ctx: Context
    agent: AgentContext
    tools: Tools
    secret: bool

    @property
    def pages(self) -> ContextSystem:
        return self.ctx.pages


def letters(texts: list[str]) -> list[list[int]]:
    """Vectors that are similar for words with the same letters."""
    return [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz座位"] for text in texts]


@pytest.fixture(autouse=True, scope="module")
def stopped_clock() -> Iterator[None]:
    """Give both worlds the same times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: 1_000_000_000_000)
        yield


def new_world(secret: bool, embedder: Any = None) -> World:
    segments = [
        Segment(id="sys", name="System", type=SegmentType.SYSTEM, permission=Permission.READ_ONLY),
        Segment(id="mem", name="Memory"),
        Segment(id="usr", name="Conversation", type=SegmentType.USER),
        Segment(id="win", name="Windows", type=SegmentType.TOOL),
    ]
    if secret:  # also among the first segments, where it shifts the positions
        segments.insert(1, Segment(id="vault", name="Vault", permission=Permission.PRIVATE))
    given: Any = {"segments": segments, "counter": WordCounter(), "embedder": embedder}
    ctx = quire.open("memory:", "world", budget=BUDGET, key="kestrel", **given)
    agent = ctx.as_agent(manage=True, quota=Quota(pages=12, bytes=2_000, depth=4, calls=1 << 30))
    return World(ctx, agent, ctx.tools_of(agent), secret)


# Steps in both

Step = Callable[[World], object]


def tried(step: Step) -> Step:
    """Run a step that may be refused. Errors for developers name entries, and entry numbers differ."""

    def run(world: World) -> object:
        return _ENTRY.sub("", answer(lambda: step(world)))

    return run


words = st.sampled_from(WORDS)
mem = st.integers(0, 6).map(lambda n: f"mem-{n}")
usr = st.integers(0, 6).map(lambda n: f"usr-{n}")
pages = mem | usr

shared: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda text: lambda w: w.ctx.user(text * 20), words),
    st.builds(lambda text: lambda w: w.ctx.assistant(text * 20), words),
    st.builds(lambda text: lambda w: w.ctx.system(text), words),
    st.builds(lambda n, d, p: lambda w: w.pages.create_detail_page(n, d, n + d, p), words, words, mem),
    st.builds(lambda n, p: lambda w: w.pages.create_contents_page(n, "", p), words, mem),
    st.builds(lambda p: lambda w: w.pages.hide(p), pages),
    st.builds(lambda p: lambda w: w.pages.archive(p), pages),
    st.builds(lambda p: lambda w: w.pages.archive(p, cold=True), pages),
    st.builds(lambda p: lambda w: w.pages.pin(p), pages),
    st.builds(lambda n, p: lambda w: w.agent.create_detail_page(n, "", n, p), words, mem),
    st.builds(lambda n, p: lambda w: w.tools.call("write_page", {"name": n, "text": n, "folder": p}), words, mem),
    st.builds(lambda p, q: lambda w: w.agent.move_page(p, q), pages, mem),
    st.builds(lambda p: lambda w: w.agent.expand_details(p), pages),
    st.builds(lambda p: lambda w: w.agent.remove_page(p), pages),
    st.builds(lambda n: lambda w: w.agent.add_segment(n), words),
    st.just(lambda w: w.ctx.render()),
    st.builds(lambda n: lambda w: w.ctx.conversation.delete(n), st.integers(0, 6)),
)


# Steps in one only


def away(page: str) -> Step:
    """Move a page out: in one world into the vault, in the other remove it."""

    def run(world: World) -> None:
        gone = (
            (lambda: world.pages.move_page(page, "vault-0"))
            if world.secret
            else (lambda: world.pages.remove_page(page))
        )
        with suppress(QuireError):  # for the same reason in both: a root, a pin, a cold page
            gone()

    return run


def hidden(step: Step) -> Step:
    """Return a step for the world with secrets alone, without an answer."""
    return lambda world: answer(lambda: step(world)) and None if world.secret else None


def add_safe(world: World) -> None:
    world.pages.add_segment(Segment(id="safe", name="Safe", type=SegmentType.SYSTEM, permission=Permission.PRIVATE))


vault = st.integers(0, 4).map(lambda n: f"vault-{n}")
secret: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda n, d, p: lambda w: w.pages.create_detail_page(n, d, (n + d) * 30, p), words, words, vault),
    st.builds(lambda n: lambda w: w.pages.create_contents_page(n, "", "vault-0"), words),
    st.builds(lambda p: lambda w: w.pages.hide(p), vault),
    st.builds(lambda p: lambda w: w.pages.pin(p), vault),
    st.builds(lambda p: lambda w: w.pages.archive(p, cold=True), vault),
    st.builds(lambda p: lambda w: w.pages.remove_page(p), vault),
    st.builds(lambda p, n: lambda w: w.pages.update_page(p, name=n), vault, words),
    st.just(add_safe),
    st.just(lambda w: w.pages.create_detail_page("a", "b", "key " * 50, "safe-0")),
    st.just(lambda w: w.pages.remove_segment("safe")),
    st.just(lambda w: w.pages.update_segment("vault", max_capacity=10)),
    st.just(lambda w: w.pages.acting_as("spy").create_detail_page("seat", "", "seat", "vault-0")),
).map(hidden)
steps = st.lists(shared.map(tried) | secret | mem.map(away), max_size=25)


# Requests of the agent


def answer(call: Callable[[], object]) -> str:
    """Return the exact result or refusal of a call."""
    try:
        return whole_repr(call())
    except QuireError as error:
        return f"{type(error).__name__} {error.code} {error}"


def questions(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every request of an agent that changes nothing."""
    agent, tools = world.agent, world.tools
    yield "segments", agent.list_segments
    yield "contents", agent.view
    yield "pages", agent.list_pages
    yield "tools", lambda: (tools.openai(), tools.call("read_page"), tools.call("budget"))
    for index in INDICES:
        for look in (agent.get_page, agent.children, agent.parent, agent.ancestors, agent.read_page):
            yield f"{look.__name__} {index}", _bound(look, index)
        for operation in ("get_page", "hide_details", "move_page", "remove_segment"):
            yield f"{operation}? {index}", _bound(agent.check_permission, index, operation)
        yield f"tool {index}", _bound(tools.call, "read_page", {"page": index})
        yield f"after {index}", _bound(agent.list_pages, index, 3)
    for segment in SEGMENTS:
        yield f"segment {segment}", _bound(agent.get_segment, segment)
    for word in (*WORDS, "secret", "Vault", "seat window"):
        yield f"find {word}", _bound(agent.find, word)
        yield f"tool find {word}", _bound(tools.call, "find", {"query": word, "limit": 3})
    for segment in SEGMENTS:
        yield f"find in {segment}", _bound(agent.find, "seat", segment=segment)
    yield "view", lambda: [world.ctx.render(preview=True).openai(), world.ctx.render(preview=True).anthropic()]


def changes(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every change that an agent can make, in both worlds."""
    agent, tools = world.agent, world.tools
    for index in INDICES:
        yield f"hide {index}", _bound(agent.hide_details, index)
        yield f"expand {index}", _bound(agent.expand_details, index)
        yield f"write into {index}", _bound(agent.create_detail_page, "new", "", "text", index)
        yield f"gather {index}", _bound(agent.create_contents_page, "new", "", "mem-0", [index])
        yield f"move {index}", _bound(agent.move_page, index, "mem-0")
        yield f"move into {index}", _bound(agent.move_page, "mem-1", index)
        yield f"before {index}", _bound(agent.move_page, "mem-1", "mem-0", index)
        yield f"rename {index}", _bound(agent.update_page, index, name="other")
        for tool in ("archive", "recall", "remove_page"):
            yield f"{tool} {index}", _bound(tools.call, tool, {"page": index})
    for segment in SEGMENTS:
        yield f"remove {segment}", _bound(agent.remove_segment, segment)
        yield f"permit {segment}", _bound(tools.call, "segment", {"do": "permit", "segment": segment})
    for name in ("Mine", "Vault", "vault"):
        yield f"add {name}", _bound(agent.add_segment, name)
    yield "view", lambda: world.ctx.render().openai()


def _bound(call: Callable[..., object], *arguments: Any, **named: Any) -> Callable[[], object]:
    return lambda: call(*arguments, **named)


def differences(one: World, other: World) -> Iterator[str]:
    """Yield the differences that the agent can see."""
    for ask in (questions, changes, questions):
        for (name, here), (_, there) in zip(ask(one), ask(other), strict=True):
            mine, theirs = answer(here), answer(there)
            if mine != theirs:
                yield f"{name}: {mine} ≠ {theirs}"


def pair_after(script: list[Step], embedder: Any = None) -> tuple[World, World]:
    worlds = new_world(True, embedder), new_world(False, embedder)
    for step in script:
        mine, theirs = (step(world) for world in worlds)
        assert mine == theirs
    return worlds


@given(steps)
@settings(max_examples=5, deadline=None)
def test_an_agent_cannot_tell_whether_there_are_private_pages(script: list[Step]) -> None:
    assert list(differences(*pair_after(script))) == []


@given(steps)
@settings(max_examples=4, deadline=None)
def test_vectors_of_private_pages_show_nowhere(script: list[Step]) -> None:
    pytest.importorskip("numpy")
    worlds = pair_after(script, letters)
    for (name, here), (_, there) in zip(*map(searches, worlds), strict=True):
        assert answer(here) == answer(there), name


def searches(world: World) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield an agent's searches by words and by meaning."""
    for word in (*WORDS, "taes", "tighfl", "wodwin 座", '"seat"'):
        for limit in (1, 100):
            yield f"find {word} {limit}", _bound(world.agent.find, word, limit)
        yield f"tool find {word}", _bound(world.tools.call, "find", {"query": word})


def test_a_full_vault_beside_a_full_context_shows_nowhere() -> None:
    def fill(world: World) -> None:
        for number in range(6):
            world.ctx.user(f"question {number} about seat {number}")
            world.ctx.assistant("an answer " * 40)
            if world.secret:
                world.pages.create_detail_page("seat", "seat window", "seat " * 200, "vault-0", pinned=True)
                world.pages.set_segment_permission("vault", Permission.READ_WRITE)
                world.pages.set_segment_permission("vault", Permission.PRIVATE)
            world.ctx.render()
            world.pages.create_detail_page("seat", "", "seat", "mem-0")

    assert list(differences(*pair_after([fill, away("mem-2"), away("mem-3")]))) == []
    pytest.importorskip("numpy")
    worlds = pair_after([fill, away("mem-2"), away("mem-3")], letters)
    assert [answer(ask) for _, ask in searches(worlds[0])] == [answer(ask) for _, ask in searches(worlds[1])]
    assert worlds[0].agent.find("taes")  # found only by meaning


def test_what_only_one_agent_may_see_is_noticed() -> None:
    """The test can fail: a page that both may see is in one world only."""

    def write(world: World) -> None:
        if world.secret:
            world.pages.create_detail_page("seat", "", "seat", "mem-0")

    worlds = pair_after([write])
    found = list(differences(*worlds))
    for request in ("get_page mem-1", "pages", "after mem-0", "find seat", "view"):
        assert any(line.startswith(request) for line in found), request
