"""The agent: the cost of permission checks, tools, the preamble and a folded line.

The folded lines come from the recorded conversations, if they are available.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import quire
from bench.figures import Figure
from bench.measure import NoTokens
from bench.traces import TRACES, conversation
from quire import Context, VocabularyCounter
from quire.agent.gate import Gate, VisibleReader
from quire.agent.tool_table import TOOLS, openai_schema
from quire.core.records import PageRecord
from quire.view.preamble import fill_preamble

BUDGET = 8_000
_ROUNDS = 40
_EACH = 250


def run(folder: Path, messages: int) -> list[Figure]:
    """Return all figures of the agent."""
    return [*asking(), *words(), *(folded_lines() if TRACES.exists() else []), *(paging() if TRACES.exists() else [])]


def asking() -> list[Figure]:
    """Measure what the permission check adds to reading and hiding a page: alternately with and without it."""
    ctx = quire.open("memory:", counter=NoTokens())
    ctx.user("Hello.")
    page = ctx.pages.create_detail_page("page", "", "text", ctx.pages.create_contents_page("folder", "", "mem-0"))
    reading = _beside(lambda: ctx.agent.get_page(page), lambda: ctx.pages.get_page(page))
    hiding = _with_and_without_gate(_toggling(ctx, page)) / 2
    return [
        Figure("extra time of get_page through ctx.agent, compared with ctx.pages", reading, "µs", 5, "median"),
        Figure("extra time of the permission check in hide or expand", hiding, "µs", 5, "median"),
    ]


def words() -> list[Figure]:
    """Return the tokens that every call to a model includes."""
    count = VocabularyCounter().count
    schemas = json.dumps([openai_schema(tool, tool.name) for tool in TOOLS], separators=(",", ":"))
    return [
        Figure(f"tokens of the schemas of all {len(TOOLS)} tools", count(schemas), "", 1_200, "compact JSON, o200k"),
        Figure("tokens of the preamble", count(fill_preamble("kestrel")), "", 250, "o200k"),
    ]


def folded_lines() -> list[Figure]:
    """Return the tokens of a folded line without its name and summary, over all views of five long conversations."""
    count = VocabularyCounter().count
    over: dict[tuple[str, str], int] = {}
    for start in range(0, 200, 40):
        ctx = quire.open("memory:", budget=BUDGET)
        for message in conversation(400, start):
            ctx.add(message)
            view = ctx.render()
            for shown in view.pages:
                key = (f"{start} {shown.index}", str(shown.tokens))
                if shown.granularity == "line" and key not in over:
                    page = ctx.pages.get_page(shown.index)
                    over[key] = shown.tokens - count(page.name) - count(page.description)
    mean = statistics.mean(over.values())
    note = f"{len(over):,} lines, long/8k"
    return [Figure("tokens of a folded line beside its name and summary, on average", mean, "", 11, note)]


def paging() -> list[Figure]:
    """Run a scripted agent that searches results of calls in a long conversation, with only find and read_page."""
    ctx = quire.open("memory:", budget=BUDGET)
    history = conversation(2_000)
    ctx.import_messages(history)
    ctx.render()
    tools = ctx.tools_of(ctx.as_agent(quota=quire.Quota(calls=1 << 40)))
    wanted = [str(message["content"]) for message in history if message["role"] == "tool"][::40]
    wanted = [text for text in wanted if len(text) > 40]
    found = 0
    for text in wanted:
        words_of = " ".join(text.split()[:40])[:300]
        said = tools.call("find", {"query": words_of})
        pages = [line[1:].partition("]")[0] for line in said.splitlines() if line.startswith("[")]
        found += any(text[:200] in tools.call("read_page", {"page": page, "length": 20_000}) for page in pages)
    share = 100 - 100 * found / len(wanted)
    return [Figure("results of earlier calls that a scripted agent does not find again", share, "%", 5, "find, 5 hits")]


def _beside(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """Return how many microseconds more one takes than the other, measured alternately."""
    return statistics.median(_each(ours) - _each(theirs) for _ in range(_ROUNDS)) * 1e6


def _with_and_without_gate(operation: Callable[[], object]) -> float:
    closed = Gate.page

    def opened(
        self: Gate, reader: VisibleReader, operation: str, index: object, *, whole_subtree: bool | None = None
    ) -> PageRecord:
        return reader._reader.require_page(index)

    def without() -> float:
        Gate.page = opened  # type: ignore[method-assign]
        try:
            return _each(operation)
        finally:
            Gate.page = closed  # type: ignore[method-assign]

    return statistics.median(_each(operation) - without() for _ in range(_ROUNDS)) * 1e6


def _toggling(ctx: Context, page: str) -> Callable[[], object]:
    def toggle() -> None:
        ctx.agent.hide_details(page)
        ctx.agent.expand_details(page)

    return toggle


def _each(operation: Callable[[], object]) -> float:
    """Return the seconds of one call, over many."""
    start = time.perf_counter()
    for _ in range(_EACH):
        operation()
    return (time.perf_counter() - start) / _EACH
