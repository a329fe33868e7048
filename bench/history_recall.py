"""Recall in generated histories: the evidence in the view, the newest value last, and the cost of a question.

The figures of the held-out histories and of those for tuning are separate. Small talk is measured too.
"""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.histories import HELD_OUT, START, TUNED, History, make_history
from bench.measure import NoTokens, in_processes
from bench.recall import PROMPT, flatten
from quire import ContextSystem, MemoryStorage, SQLiteStorage, Storage
from quire.context import DEFAULT_SEGMENTS, Context
from quire.search.query import all_segments
from quire.search.vectors import get_vectors
from quire.view.view import View

BUDGET = 1_000
SIZES = {4_000: 10.0, 100_000: 30.0}
"""The limit in milliseconds of a question with recall beyond one without it, by the number of messages."""
GREETINGS = ("hello again", "Good morning!", "thanks, that is all", "ok", "你好")
SMALL_TALK = ("How are you doing today?", "lol nice", "Tell me something.", "What a week!", "今天过得怎么样？")
WIDTH, MAX_FOUND, SEARCH_MS = 256, 200, 30.0
"""The numbers of a vector, the pages that a search returns, and its limit in milliseconds."""
_ASKED = 9


def run(folder: Path) -> list[Figure]:
    """Return all figures of generated histories, and the cost of recall."""
    halves = in_processes(_recall, [("held out", HELD_OUT), ("tuned", TUNED)])
    talk = [_small_talk("greetings", GREETINGS, 0), _small_talk("small talk", SMALL_TALK, 300)]
    return [*(figure for figures in halves for figure in figures), *talk, *_costs(folder)]


def _recall(name: str, numbers: Sequence[int]) -> list[Figure]:
    asked, shown, wrong, right = Counter[str](), Counter[str](), 0, 0
    tokens = answered = 0
    for history in map(make_history, numbers):
        context = store_history(history)
        texts = [flatten(said.text) for said in history.messages]
        for one in history.questions:
            view = _ask(context, one.question)
            found = flatten("\n".join(message.text for message in view.messages))
            is_shown = all(texts[number] in found for number in one.evidence)
            asked[one.kind] += 1
            shown[one.kind] += is_shown
            if is_shown:
                answered += 1
                tokens += sum(part.tokens for part in view.tail if part.kind == "recalled")
            if one.stale and is_shown:
                is_last = all(found.rfind(texts[number]) < found.rfind(texts[one.evidence[-1]]) for number in one.stale)
                right, wrong = right + is_last, wrong + (not is_last)
    by = ", ".join(f"{kind}: {shown[kind] / asked[kind]:.2f}" for kind in sorted(asked))
    each = f"{tokens / max(answered, 1):.0f} tokens recalled for each answered question"
    note = f"{asked.total()} questions, `recall=True`; all shown by kind {by}; {each}"
    missing = 100 * (1 - shown.total() / asked.total())
    return [
        Figure(f"evidence not all shown, histories {name}, {BUDGET:,} tokens", missing, "%", None, note),
        Figure(f"newest value not last, histories {name}", wrong, "", 0, f"of {wrong + right} questions"),
    ]


def _small_talk(name: str, texts: Sequence[str], limit: int) -> Figure:
    """Return the tokens that such messages recall, on average."""
    context = store_history(make_history(HELD_OUT[0]))
    sizes = [sum(part.tokens for part in _ask(context, text).tail if part.kind == "recalled") for text in texts]
    note = ", ".join(f"{text} {size}" for text, size in zip(texts, sizes, strict=True))
    return Figure(f"tokens recalled for {name}", statistics.mean(sizes), "tokens", limit, note)


def _costs(folder: Path) -> list[Figure]:
    figures: list[Figure] = []
    for size in SIZES:
        stores: dict[str, Storage] = {"memory": MemoryStorage(), "SQLite": SQLiteStorage(folder / f"recall-{size}.db")}
        for name, storage in stores.items():
            context = _fill(storage, size)
            figures.append(_cost(context, size, name))
            if name == "memory" and size == max(SIZES):
                figures.append(_vector_search(context, size))
            context.close()
    return figures


def _fill(storage: Storage, size: int) -> Context:
    """Return a conversation with this many messages: a history again and again, with other numbers."""
    context = _new_context([START], storage=storage, counter=NoTokens())
    said = [{"role": one.role, "content": one.text} for one in make_history(HELD_OUT[1]).messages]
    rounds = -(-size // len(said))
    context.import_messages(
        [{**one, "content": f"{one['content']} {turn}"} for turn in range(rounds) for one in said][:size]
    )
    context.render()
    return context


def _cost(context: Context, size: int, storage: str) -> Figure:
    """Return the processor time of a question with recall beyond one without it."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for one in make_history(HELD_OUT[1]).questions[: _ASKED + 1]:
        for recall in (False, True):
            context.user(one.question)
            start = time.process_time()
            context.render(recall=recall or None)
            took[recall].append((time.process_time() - start) * 1e3)
            context.assistant("Noted.")
    with_recall, without = (statistics.median(took[recall][1:]) for recall in (True, False))
    note = f"{with_recall:.1f} ms against {without:.1f} ms; the first question {took[True][0]:.0f} ms"
    name = f"a question in {size:,} messages, {storage}: recall"
    return Figure(name, max(with_recall - without, 0.0), "ms", SIZES[size], note)


def _vector_search(context: Context, size: int) -> Figure:
    """Return the time of a search among the vectors of all messages. Its vectors are random: values cost no time."""
    import numpy

    chance = numpy.random.default_rng(7)

    def embed(texts: list[str]) -> Any:
        return chance.standard_normal((len(texts), WIDTH), dtype=numpy.float32)

    start, state = time.perf_counter(), context.pages._engine.current()
    vectors, vector = get_vectors("", state, embed)
    stored = time.perf_counter() - start
    spans = all_segments(state).spans()
    took: list[float] = []
    for _ in range(_ASKED):
        start = time.perf_counter()
        found = vectors.like(vector, spans, MAX_FOUND)
        took.append((time.perf_counter() - start) * 1e3)
    note = f"{WIDTH} numbers of a byte, the best {len(found)}; the first vectors took {stored:.0f} s"
    return Figure(f"search of vectors among {size:,} messages", statistics.median(took), "ms", SEARCH_MS, note)


def store_history(history: History, budget: int = BUDGET) -> Context:
    """Return a history as a context, as an agent would have stored it."""
    now = [0]
    context = _new_context(now, budget=budget)
    context.system(PROMPT)
    for said in history.messages:
        now[0] = said.when
        context.add({"role": said.role, "content": said.text})
    context.render()
    return context


def _new_context(now: list[int], *, budget: int = BUDGET, storage: Storage | None = None, **options: object) -> Context:
    system = ContextSystem(storage or MemoryStorage(), clock=lambda: now[0], **options)  # type: ignore[arg-type]
    for segment in DEFAULT_SEGMENTS:
        system.add_segment(segment)
    return Context(system, budget=budget, preamble="")


def _ask(context: Context, question: str) -> View:
    with context.temporary():
        context.user(question)
        return context.render(recall=True)
