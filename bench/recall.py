"""Recall on real long dialogues: how many questions find all the turns that hold their evidence, within a budget.

Each dialogue is added to a context session by session, at the time it was held; then every question is asked. All ways
get the same frame (a system prompt, the question, speakers, the date once a day) and the same budget in all.
"""

import gzip
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.figures import Figure
from quire import ContextSystem, MemoryStorage, Segment, SegmentType, VocabularyCounter
from quire.conversation import Conversation
from quire.messages import PER_MESSAGE
from quire.search.gathering import likeness_of, memories, words_of
from quire.search.recalling import Memory, asked_words, laid_out, recall
from quire.search.scope import everything
from quire.search.vectors import Embedder, embedded

DIALOGUES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "locomo.jsonl.gz"
BUDGETS = (1_000, 2_000, 4_000, 8_000)
PROMPT = "You are a helpful companion who remembers what was said."
HEADER = "Recalled:\n"
MISSING = {
    ("quire", 1_000): 28.0,
    ("quire", 4_000): 17.0,
    ("quire + wordllama", 1_000): 24.0,
    ("quire + wordllama", 4_000): 13.0,
}
"""The most questions, of a hundred, whose evidence may not all stand in the view."""
COUNT = VocabularyCounter().count
Way = Callable[["Dialogue", str, int], set[int]]


@dataclass
class Dialogue:
    """A dialogue as a context, with what the other ways need."""

    system: ContextSystem
    turns: list[Memory]
    pages: dict[str, int]
    questions: list[dict[str, Any]]
    bm25: Any = None
    vectors: Any = None


@dataclass
class Tally:
    """How many questions had all of their evidence shown, and how much on average, by category."""

    asked: dict[int, int] = field(default_factory=dict)
    whole: dict[int, int] = field(default_factory=dict)
    share: dict[int, float] = field(default_factory=dict)

    def add(self, category: int, found: Sequence[bool]) -> None:
        self.asked[category] = self.asked.get(category, 0) + 1
        self.whole[category] = self.whole.get(category, 0) + all(found)
        self.share[category] = self.share.get(category, 0.0) + sum(found) / len(found)

    def missing(self) -> float:
        """Of a hundred questions of categories 1 to 4, those whose evidence is not all shown."""
        asked = sum(count for category, count in self.asked.items() if category < 5)
        whole = sum(count for category, count in self.whole.items() if category < 5)
        return 100 * (1 - whole / asked)

    def note(self, budget: int) -> str:
        asked = sum(count for category, count in self.asked.items() if category < 5)
        mean = sum(value for category, value in self.share.items() if category < 5) / asked
        by = ", ".join(f"{n}: {self.whole[n] / self.asked[n]:.2f}" for n in sorted(self.asked))
        return f"all shown by category {by}; mean share {mean:.3f}, {mean * 1_000 / budget:.2f} a thousand tokens"


def run() -> list[Figure]:
    """All figures of recall; none without the dialogues or the packages that are measured beside quire."""
    if not DIALOGUES.exists() or find_spec("bm25s") is None or find_spec("wordllama") is None:
        return []
    from quire.embedders import wordllama

    embedder = wordllama()
    with gzip.open(DIALOGUES, "rt", encoding="utf-8") as lines:
        dialogues = [_dialogue(line, embedder) for line in lines]
    ways: dict[str, Way] = {
        "recency": _recency,
        "bm25s over turns": _bm25,
        "wordllama cosine": lambda dialogue, question, room: _cosine(dialogue, question, room, embedder),
        "quire": lambda dialogue, question, room: _quire(dialogue, question, room, None),
        "quire + wordllama": lambda dialogue, question, room: _quire(dialogue, question, room, embedder),
    }
    return [
        Figure(f"evidence not all shown, {budget:,} tokens: {name}", tally.missing(), "%", limit, tally.note(budget))
        for budget in BUDGETS
        for name, way in ways.items()
        for tally, limit in [(_tally(dialogues, way, budget), MISSING.get((name, budget)))]
    ]


def _tally(dialogues: Sequence[Dialogue], way: Way, budget: int) -> Tally:
    tally = Tally()
    for dialogue in dialogues:
        for asked in dialogue.questions:
            frame = COUNT(PROMPT) + COUNT(asked["question"]) + COUNT(HEADER) + 3 * PER_MESSAGE
            shown = way(dialogue, asked["question"], budget - frame)
            tally.add(asked["category"], [dialogue.pages[turn] in shown for turn in asked["evidence"]])
    return tally


def _dialogue(line: str, embedder: Embedder) -> Dialogue:
    told = json.loads(line)
    now = [0]
    system = ContextSystem(MemoryStorage(), clock=lambda: now[0])
    system.add_segment(Segment(id="usr", type=SegmentType.USER))
    conversation = Conversation.beside(system)
    numbers: dict[str, int] = {}
    for session in told["sessions"]:
        start = datetime.strptime(session["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, turn in enumerate(session["turns"]):
            now[0] = int(start.timestamp() + 30 * place) * 1_000
            role = "user" if turn["speaker"] == told["speakers"][0] else "assistant"
            numbers[turn["id"]] = conversation.add({"role": role, "name": turn["speaker"], "content": turn["text"]})
    state = system._engine.current()
    pages = {turn: state.message(number).page for turn, number in numbers.items()}
    turns = sorted(memories(state, "", everything(state)), key=lambda memory: memory.place)
    asked = [one for one in told["qa"] if one["evidence"] and all(turn in pages for turn in one["evidence"])]
    return Dialogue(system, turns, pages, asked, _bm25_of(turns), embedded(embedder, [_line(turn) for turn in turns]))


def _line(memory: Memory) -> str:
    return f"{memory.speaker}: {memory.text}"


def _laid_out(dialogue: Dialogue, scores: Sequence[float], room: int) -> set[int]:
    reasons = [""] * len(scores)
    return {page.key for page in laid_out(dialogue.turns, scores, reasons, room, COUNT).pages}


def _recency(dialogue: Dialogue, question: str, room: int) -> set[int]:
    """The newest messages that fit, as `trim_messages` keeps them."""
    shown: set[int] = set()
    for turn in reversed(dialogue.turns):
        room -= COUNT(_line(turn)) + PER_MESSAGE
        if room < 0:
            break
        shown.add(turn.key)
    return shown


def _bm25_of(turns: Sequence[Memory]) -> Any:
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    found = bm25s.BM25()
    found.index(bm25s.tokenize([_line(turn) for turn in turns], show_progress=False), show_progress=False)
    return found


def _bm25(dialogue: Dialogue, question: str, room: int) -> set[int]:
    import bm25s

    words = bm25s.tokenize([question], return_ids=False, show_progress=False)[0]
    return _laid_out(dialogue, dialogue.bm25.get_scores(words).tolist(), room)


def _cosine(dialogue: Dialogue, question: str, room: int, embedder: Embedder) -> set[int]:
    scores = dialogue.vectors @ embedded(embedder, [question])[0]
    return _laid_out(dialogue, [max(float(score), 0.0) for score in scores], room)


def _quire(dialogue: Dialogue, question: str, room: int, embedder: Embedder | None) -> set[int]:
    state = dialogue.system._engine.current()
    found = recall(
        question,
        memories(state, question, everything(state)),
        room,
        COUNT,
        words=words_of(state),
        likeness=likeness_of(state, question, embedder) if asked_words(question) else (),
    )
    return {page.key for page in found.pages}
