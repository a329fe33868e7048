"""Recall on real long dialogues: the share of questions with all evidence turns in the view, within a budget.

Each dialogue is added to a context session by session, with its original times, and rendered after each. Then every
question is added as the last user message and rendered with recall. All methods get the same total budget, which
includes the system prompt and the question. A turn counts if the view contains all of its text, letter for letter.
"""

import gzip
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.figures import Figure
from quire import ContextSystem, MemoryStorage, VocabularyCounter
from quire.context import Context
from quire.model.messages import PER_MESSAGE
from quire.open_context import DEFAULT_SEGMENTS
from quire.search.memory_scores import Memory
from quire.search.query import all_segments
from quire.search.recall import RankedMemories, find_memories
from quire.search.vectors import Embedder, embed

DIALOGUES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "locomo.jsonl.gz"
BUDGETS = (1_000, 4_000)
PROMPT = "You are a helpful companion who remembers what was said."
HEADER = "Recalled:\n"
MISSING = {
    ("quire", 1_000): 21.0,
    ("quire", 4_000): 10.0,
    ("quire + wordllama", 1_000): 19.0,
    ("quire + wordllama", 4_000): 7.0,
    ("quire, recall=True", 4_000): 13.0,
}
"""The limit of questions, of a hundred, with incomplete evidence in the view."""
_DEFAULT = "quire, recall=True"
COUNT = VocabularyCounter().count


@dataclass
class Dialogue:
    """A dialogue with its questions, and the data of the methods that are compared with quire."""

    told: dict[str, Any]
    questions: list[dict[str, Any]]
    texts: dict[str, str]
    turns: list[Memory]
    bm25: Any
    vectors: Any


Way = Callable[[Dialogue, int], Callable[[str], str]]
"""A method: for a question, it returns all the text of the view of a dialogue under a budget."""


@dataclass
class Tally:
    """The number of questions with all evidence shown, and the mean share of shown evidence, by category.

    `answers` says for each question whether all evidence was shown.
    """

    asked: dict[int, int] = field(default_factory=dict)
    whole: dict[int, int] = field(default_factory=dict)
    share: dict[int, float] = field(default_factory=dict)
    answers: list[bool] = field(default_factory=list)

    def add(self, category: int, found: Sequence[bool]) -> None:
        self.asked[category] = self.asked.get(category, 0) + 1
        self.whole[category] = self.whole.get(category, 0) + all(found)
        self.share[category] = self.share.get(category, 0.0) + sum(found) / len(found)
        self.answers.append(all(found))

    def missing(self) -> float:
        """Return how many of a hundred questions of categories 1 to 4 have incomplete evidence."""
        asked = sum(count for category, count in self.asked.items() if category < 5)
        whole = sum(count for category, count in self.whole.items() if category < 5)
        return 100 * (1 - whole / asked)

    def note(self, budget: int) -> str:
        asked = sum(count for category, count in self.asked.items() if category < 5)
        mean = sum(value for category, value in self.share.items() if category < 5) / asked
        by = ", ".join(f"{n}: {self.whole[n] / self.asked[n]:.2f}" for n in sorted(self.asked))
        return f"all shown by category {by}; mean share {mean:.3f}, {mean * 1_000 / budget:.2f} a thousand tokens"


def run() -> list[Figure]:
    """Return all figures of recall; none without the dialogues or the packages that are compared."""
    if not DIALOGUES.exists() or find_spec("bm25s") is None or find_spec("wordllama") is None:
        return []
    from quire.search.embedders import wordllama

    embedder = wordllama()
    with gzip.open(DIALOGUES, "rt", encoding="utf-8") as lines:
        dialogues = [_dialogue(json.loads(line), embedder) for line in lines]
    ways: dict[str, Way] = {
        "recency": _recency,
        "bm25s over turns": _bm25,
        "wordllama cosine": lambda dialogue, budget: _cosine(dialogue, budget, embedder),
        "quire": lambda dialogue, budget: _quire(dialogue, budget, None),
        "quire + wordllama": lambda dialogue, budget: _quire(dialogue, budget, embedder),
    }
    figures = [
        _figure(name, _tally(dialogues, way, budget), budget) for budget in BUDGETS for name, way in ways.items()
    ]
    tokens: list[int] = []
    tally = _tally(dialogues, lambda one, budget: _quire(one, budget, None, True, tokens), BUDGETS[-1])
    default = _figure(_DEFAULT, tally, BUDGETS[-1])
    answered = [size for size, is_whole in zip(tokens, tally.answers, strict=True) if is_whole]
    note = (
        f"tokens recalled: {sum(tokens) / len(tokens):.0f} for each question, {sum(answered) / len(answered):.0f} for"
    )
    return [*figures, replace(default, note=f"{note} each answered one; {default.note}")]


def _figure(name: str, tally: Tally, budget: int) -> Figure:
    limit = MISSING.get((name, budget))
    return Figure(f"evidence not all shown, {budget:,} tokens: {name}", tally.missing(), "%", limit, tally.note(budget))


def _tally(dialogues: Sequence[Dialogue], way: Way, budget: int) -> Tally:
    tally = Tally()
    for dialogue in dialogues:
        show = way(dialogue, budget)
        for asked in dialogue.questions:
            shown = flatten(show(asked["question"]))
            tally.add(asked["category"], [flatten(dialogue.texts[turn]) in shown for turn in asked["evidence"]])
    return tally


def flatten(text: str) -> str:
    """Return a text without line breaks and indents, because further lines of recalled texts are indented."""
    return " ".join(text.split())


def _dialogue(told: dict[str, Any], embedder: Embedder) -> Dialogue:
    texts = {turn["id"]: turn["text"].strip() for session in told["sessions"] for turn in session["turns"]}
    questions = [one for one in told["qa"] if one["evidence"] and all(turn in texts for turn in one["evidence"])]
    state = store_dialogue(told, None, 10**6, 0).pages._engine.current()
    turns = sorted(find_memories(state, "", all_segments(state)), key=lambda memory: memory.place)
    lines = [_line(turn) for turn in turns]
    return Dialogue(told, questions, texts, turns, _bm25_of(lines), embed(embedder, lines))


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


def _quire(
    dialogue: Dialogue, budget: int, embedder: Embedder | None, recall: float = 1.0, tokens: list[int] | None = None
) -> Callable[[str], str]:
    """Return the views with this recall; the tokens of the recalled pages are appended to `tokens`."""
    context = store_dialogue(dialogue.told, embedder, budget, recall)

    def show(question: str) -> str:
        with context.temporary():
            context.user(question)
            view = context.render(recall=recall)
        if tokens is not None:
            tokens.append(sum(part.tokens for part in view.tail if part.kind == "recalled"))
        if view.tokens > budget:
            raise AssertionError(f"a view of {view.tokens} tokens, {budget} were allowed")
        return "\n".join(message.text for message in view.messages)

    return show


def _line(memory: Memory) -> str:
    return f"{memory.speaker}: {memory.text}"


def _room(budget: int, question: str) -> int:
    """Return the budget for recalled turns after a plain frame."""
    return budget - COUNT(PROMPT) - COUNT(question) - COUNT(HEADER) - 3 * PER_MESSAGE


def _laid_out(dialogue: Dialogue, scores: Sequence[float], room: int) -> str:
    return RankedMemories(dialogue.turns, scores, str).lay_out(room, COUNT).text


def _recency(dialogue: Dialogue, budget: int) -> Callable[[str], str]:
    """Return the newest messages that fit, as `trim_messages` keeps them."""

    def show(question: str) -> str:
        room = _room(budget, question)
        shown: list[str] = []
        for turn in reversed(dialogue.turns):
            room -= COUNT(_line(turn)) + PER_MESSAGE
            if room < 0:
                break
            shown.append(turn.text)
        return "\n".join(shown)

    return show


def _bm25_of(lines: Sequence[str]) -> Any:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    found = bm25s.BM25()
    found.index(bm25s.tokenize(list(lines), show_progress=False), show_progress=False)
    return found


def _bm25(dialogue: Dialogue, budget: int) -> Callable[[str], str]:
    import bm25s

    def show(question: str) -> str:
        words = bm25s.tokenize([question], return_ids=False, show_progress=False)[0]
        return _laid_out(dialogue, dialogue.bm25.get_scores(words).tolist(), _room(budget, question))

    return show


def _cosine(dialogue: Dialogue, budget: int, embedder: Embedder) -> Callable[[str], str]:
    def show(question: str) -> str:
        scores = dialogue.vectors @ embed(embedder, [question])[0]
        return _laid_out(dialogue, [max(float(score), 0.0) for score in scores], _room(budget, question))

    return show
