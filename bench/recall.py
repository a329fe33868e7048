"""Recall on real long dialogues: the share of questions with all evidence turns in the view, within a budget.

Each dialogue is added to a context session by session, with its original times, and rendered after each. Then every
question is added as the last user message and rendered with recall. All methods get the same total budget, which
includes the system prompt and the question. A turn counts if the view contains all of its text, letter for letter.
"""

import gzip
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from bench.figures import Figure
from bench.measure import in_processes
from bench.traces import DATA
from quire import ContextSystem, MemoryStorage, VocabularyCounter
from quire.context import DEFAULT_SEGMENTS, Context
from quire.model.messages import PER_MESSAGE
from quire.search import recall as search_recall
from quire.search.embedders import wordllama
from quire.search.memory_scores import Memory
from quire.search.query import agent_scope, all_segments
from quire.search.recall import RankedMemories, find_memories
from quire.search.vectors import Embedder, embed

DIALOGUES = DATA / "locomo.jsonl.gz"
BUDGETS = (1_000, 2_000, 4_000, 8_000)
PROMPT = "You are a helpful companion who remembers what was said."
HEADER = "Recalled:\n"
WORDS, VECTORS = "quire", "quire + wordllama"
SELECTIVE = ", recall=True"
MISSING = {(WORDS, 1_000): 21.0, (WORDS, 4_000): 10.0, (VECTORS, 1_000): 19.0, (VECTORS, 4_000): 7.0}
"""The limit of questions, of a hundred, with incomplete evidence in the view."""
MISSING_IN_CATEGORY = {
    (WORDS, 4_000, 1): 38.0,
    (VECTORS, 4_000, 1): 26.0,
    (WORDS, 1_000, 5): 5.92,
    (WORDS, 4_000, 5): 0.85,
    (VECTORS, 1_000, 5): 4.65,
    (VECTORS, 4_000, 5): 0.0,
}
"""The same for the questions of one category. For category 5, the limit is the result of version 0.1.0."""
POINTS = 3.0
"""`recall=True` may show all evidence for so many fewer questions, of a hundred, than `recall=1.0`."""
COUNT = cache(VocabularyCounter().count)
embedder = cache(wordllama)
"""Returns the one embedder of a process: its model is loaded once."""


@dataclass
class Dialogue:
    """A dialogue with its questions, and the data of the methods that are compared with quire."""

    told: dict[str, Any]
    questions: list[dict[str, Any]]
    texts: dict[str, str]
    turns: list[Memory]
    bm25: Any
    vectors: Any


Show = Callable[[str], tuple[str, int]]
"""Returns all the text of the view for a question, and the recalled tokens (0 if they are not counted)."""
Way = Callable[[Dialogue, int], Show]
"""A method: it shows a dialogue under a budget."""


@dataclass
class Tally:
    """The number of questions with all evidence shown, and the mean share of shown evidence, by category."""

    asked: Counter[int] = field(default_factory=Counter)
    whole: Counter[int] = field(default_factory=Counter)
    share: Counter[int] = field(default_factory=Counter)
    tokens: int = 0
    """The recalled tokens of all questions, and of those with all evidence shown."""
    answered: int = 0

    def add(self, category: int, found: Sequence[bool], tokens: int = 0) -> None:
        self.asked[category] += 1
        self.whole[category] += all(found)
        self.share[category] += sum(found) / len(found)  # type: ignore[assignment]
        self.tokens += tokens
        self.answered += tokens if all(found) else 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.asked + other.asked,
            self.whole + other.whole,
            self.share + other.share,
            self.tokens + other.tokens,
            self.answered + other.answered,
        )

    def missing(self, *categories: int) -> float:
        """Return how many of a hundred questions of these categories, or of 1 to 4, have incomplete evidence."""
        chosen = categories or (1, 2, 3, 4)
        asked = sum(self.asked[category] for category in chosen)
        return 100 * (1 - sum(self.whole[category] for category in chosen) / asked)

    def note(self, budget: int) -> str:
        asked = sum(count for category, count in self.asked.items() if category < 5)
        mean = sum(value for category, value in self.share.items() if category < 5) / asked
        by = ", ".join(f"{n}: {self.whole[n] / self.asked[n]:.2f}" for n in sorted(self.asked))
        return f"all shown by category {by}; mean share {mean:.3f}, {mean * 1_000 / budget:.2f} a thousand tokens"


def run() -> list[Figure]:
    """Return all figures of recall; none without the dialogues or the packages that are compared."""
    if not can_run():
        return []
    names = [(name, budget) for budget in BUDGETS for name in WAYS]
    jobs = [(name, budget, number) for name, budget in names for number in range(dialogue_count())]
    parts = dict(zip(jobs, in_processes(ask_all, jobs), strict=True))
    tallies = {
        (name, budget): sum((parts[name, budget, number] for number in range(dialogue_count())), Tally())
        for name, budget in names
    }
    return [
        *(_figure(name, budget, tallies) for name, budget in names),
        *(
            Figure(
                f"category {category} not all shown, {budget:,} tokens: {name}",
                tallies[name, budget].missing(category),
                "%",
                limit,
                f"{tallies[name, budget].asked[category]} questions",
            )
            for (name, budget, category), limit in MISSING_IN_CATEGORY.items()
        ),
    ]


def can_run() -> bool:
    """Return True if the dialogues and the packages that are compared are there."""
    return DIALOGUES.exists() and find_spec("bm25s") is not None and find_spec("wordllama") is not None


def _figure(name: str, budget: int, tallies: dict[tuple[str, int], Tally]) -> Figure:
    tally = tallies[name, budget]
    limit, note = MISSING.get((name, budget)), tally.note(budget)
    if name.endswith(SELECTIVE):
        limit = round(tallies[name.removesuffix(SELECTIVE), budget].missing() + POINTS, 2)
        asked, answered = tally.asked.total(), tally.whole.total()
        each = f"{tally.tokens / asked:.0f} for each question, {tally.answered / answered:.0f} for each answered one"
        note = f"tokens recalled: {each}; {note}"
    return Figure(f"evidence not all shown, {budget:,} tokens: {name}", tally.missing(), "%", limit, note)


def ask_all(name: str, budget: int, number: int) -> Tally:
    """Ask all questions about the dialogue with this number; `name` is one of `WAYS`."""
    dialogue, tally = load_dialogue(number), Tally()
    show = WAYS[name](dialogue, budget)
    for asked in dialogue.questions:
        shown, tokens = show(asked["question"])
        text = flatten(shown)
        tally.add(asked["category"], [flatten(dialogue.texts[turn]) in text for turn in asked["evidence"]], tokens)
    return tally


@cache
def read_dialogues() -> list[dict[str, Any]]:
    """Return the dialogues as they are stored."""
    with gzip.open(DIALOGUES, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def dialogue_count() -> int:
    return len(read_dialogues())


def flatten(text: str) -> str:
    """Return a text without line breaks and indents, because further lines of recalled texts are indented."""
    return " ".join(text.split())


@cache
def load_dialogue(number: int) -> Dialogue:
    """Return the dialogue with this number."""
    told = read_dialogues()[number]
    texts = {turn["id"]: turn["text"].strip() for session in told["sessions"] for turn in session["turns"]}
    questions = [one for one in told["qa"] if one["evidence"] and all(turn in texts for turn in one["evidence"])]
    state = store_dialogue(told, None, 10**6, 0).pages._engine.current()
    turns = sorted(find_memories(state, "", all_segments(state)), key=lambda memory: memory.place)
    lines = [_line(turn) for turn in turns]
    return Dialogue(told, questions, texts, turns, _bm25_of(lines), embed(embedder(), lines))


def store_dialogue(told: dict[str, Any], embedder: Embedder | None, budget: int, recall: float) -> Context:
    """Return a dialogue as a context, as an agent would have stored it."""
    now = [0]
    system = ContextSystem(MemoryStorage(), clock=lambda: now[0], embedder=embedder)
    for segment in DEFAULT_SEGMENTS:
        system.add_segment(segment)
    context = Context(system, budget=budget, preamble="")
    context.system(PROMPT)
    for session in told["sessions"]:
        for now[0], message in _messages(told, session):
            context.add(message)
        context.render(recall=recall)
    return context


def _messages(told: dict[str, Any], session: dict[str, Any]) -> Iterator[tuple[int, dict[str, str]]]:
    start = datetime.strptime(session["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    for place, turn in enumerate(session["turns"]):
        role = "user" if turn["speaker"] == told["speakers"][0] else "assistant"
        message = {"role": role, "name": turn["speaker"], "content": turn["text"]}
        yield int(start.timestamp() + 30 * place) * 1_000, message


def _quire(dialogue: Dialogue, budget: int, *, vectors: bool = False, recall: float = 1.0) -> Show:
    """Return the views with this recall, and the tokens of the recalled pages."""
    context = store_dialogue(dialogue.told, embedder() if vectors else None, budget, recall)

    share_exchanges = _exchanges_of(context)

    def show(question: str) -> tuple[str, int]:
        with context.temporary():
            context.user(question)
            share_exchanges()
            view = context.render(recall=recall)
        if view.tokens > budget:
            raise AssertionError(f"a view of {view.tokens} tokens, {budget} were allowed")
        tokens = sum(part.tokens for part in view.tail if part.kind == "recalled")
        return "\n".join(message.text for message in view.messages), tokens

    return show


def _exchanges_of(context: Context) -> Callable[[], None]:
    """Read the exchanges of a context. Return a function that gives them to a temporary block.

    Otherwise every block reads them again, which takes half of the time. A question in the block is not one of them, as
    recall never returns it.
    """
    engine = context.pages._engine
    scope = agent_scope(engine.current())
    find_memories(engine.current(), "", scope)
    known = search_recall._caches[engine.current()]

    def share() -> None:
        cache, state = copy(known), engine.state
        cache._memories, cache._keys = dict(known._memories), dict(known._keys)
        cache._version = state.head.identity, state.version, scope.segments
        search_recall._caches[state] = cache

    return share


def _line(memory: Memory) -> str:
    return f"{memory.speaker}: {memory.text}"


def room_of(budget: int, question: str) -> int:
    """Return the budget for recalled turns after a plain frame."""
    return budget - COUNT(PROMPT) - COUNT(question) - COUNT(HEADER) - 3 * PER_MESSAGE


def _laid_out(dialogue: Dialogue, scores: Sequence[float], room: int) -> tuple[str, int]:
    return RankedMemories(dialogue.turns, scores, str).lay_out(room, COUNT).text, 0


def _recency(dialogue: Dialogue, budget: int) -> Show:
    """Return the newest messages that fit, as `trim_messages` keeps them."""

    def show(question: str) -> tuple[str, int]:
        room = room_of(budget, question)
        shown: list[str] = []
        for turn in reversed(dialogue.turns):
            room -= COUNT(_line(turn)) + PER_MESSAGE
            if room < 0:
                break
            shown.append(turn.text)
        return "\n".join(shown), 0

    return show


def _bm25_of(lines: Sequence[str]) -> Any:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    found = bm25s.BM25()
    found.index(bm25s.tokenize(list(lines), show_progress=False), show_progress=False)
    return found


def _bm25(dialogue: Dialogue, budget: int) -> Show:
    import bm25s

    def show(question: str) -> tuple[str, int]:
        words = bm25s.tokenize([question], return_ids=False, show_progress=False)[0]
        return _laid_out(dialogue, dialogue.bm25.get_scores(words).tolist(), room_of(budget, question))

    return show


def _cosine(dialogue: Dialogue, budget: int) -> Show:
    def show(question: str) -> tuple[str, int]:
        scores = dialogue.vectors @ embed(embedder(), [question])[0]
        return _laid_out(dialogue, [max(float(score), 0.0) for score in scores], room_of(budget, question))

    return show


WAYS: dict[str, Way] = {
    "recency": _recency,
    "bm25s over turns": _bm25,
    "wordllama cosine": _cosine,
    WORDS: _quire,
    VECTORS: partial(_quire, vectors=True),
    WORDS + SELECTIVE: partial(_quire, recall=True),
    VECTORS + SELECTIVE: partial(_quire, vectors=True, recall=True),
}
