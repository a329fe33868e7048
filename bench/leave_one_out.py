"""The parts of recall, and its constants checked by leaving one dialogue out.

A change leaves out one part of recall, or gives one constant another value. Turns are ranked and laid out without a
view, which is faster than `bench.recall`. For each dialogue, the value of a constant with the most shown evidence in
the other dialogues is chosen, and only then applied to this one.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from bench.figures import Figure
from bench.measure import in_processes
from bench.recall import COUNT, Tally, can_run, dialogue_count, embedder, flatten, load_dialogue, room_of
from quire.search import memory_scores, recall
from quire.search.memory_scores import Likeness, WordCache
from quire.search.query import Question
from quire.search.vectors import embed

Change = Mapping[str, object]
"""New values by name: a field of `Weights`, or a name in `memory_scores`."""
BUDGETS = (1_000, 4_000)
AS_BUILT = "as built"
_NEAR = {"near": 0.0, "next": 0.0}
PARTS: dict[str, Change] = {
    "speakers": {"speaker": 0.0},
    "months": {"_date_bonus": lambda when, months: 0.0},
    "words of the best exchanges": {"feedback": 0.0},
    "shares of neighbours": _NEAR,
    "sessions": {"session": 0.0},
}
"""What is left out, by the name of the part."""
CONSTANTS: dict[str, dict[str, Change]] = {
    "words": {
        AS_BUILT: {},
        "speaker 1.0": {"speaker": 1.0},
        "session 0.7": {"session": 0.7},
    },
    "vectors": {
        AS_BUILT: {},
        "speaker 1.2": {"speaker": 1.2},
    },
}
"""The candidates, by kind of recall."""

_CHANGES = {(kind, name): change for kind, changes in CONSTANTS.items() for name, change in changes.items()} | {
    ("words", f"without {name}"): change for name, change in PARTS.items()
}
"""All changes, by kind and name."""

Shown = dict[int, Tally]
"""The shown evidence by budget."""


def run() -> list[Figure]:
    """Return all figures; none without the dialogues or the packages."""
    if not can_run():
        return []
    numbers = range(dialogue_count())
    jobs = [(*key, number) for key in _CHANGES for number in numbers]
    shown = dict(zip(jobs, in_processes(_show_all, jobs), strict=True))
    chosen = {kind: [_best(shown, kind, number) for number in numbers] for kind in CONSTANTS}
    left_out = [
        _figure(
            f"constants chosen on the other dialogues, {budget:,} tokens: {kind}",
            [shown[kind, name, number][budget] for number, name in enumerate(names)],
            f"chosen: {_join(names)}; as built {_built(shown, kind, budget)}",
        )
        for kind, names in chosen.items()
        for budget in BUDGETS
    ]
    without = [
        _figure(f"{name}, {budget:,} tokens: {kind}", [shown[kind, name, number][budget] for number in numbers])
        for kind, name in _CHANGES
        if name not in CONSTANTS[kind]
        for budget in BUDGETS
    ]
    return [*left_out, *without]


def _best(shown: Mapping[tuple[str, str, int], Shown], kind: str, left_out: int) -> str:
    """Return the change that shows all evidence for the most questions about the other dialogues."""
    others = [number for number in range(dialogue_count()) if number != left_out]
    answered = {
        name: sum(tally.whole.total() for number in others for tally in shown[kind, name, number].values())
        for name in CONSTANTS[kind]
    }
    return max(answered, key=lambda name: answered[name])  # of equal ones the first, which is the built-in one


def _built(shown: Mapping[tuple[str, str, int], Shown], kind: str, budget: int) -> str:
    tally = sum((shown[kind, AS_BUILT, number][budget] for number in range(dialogue_count())), Tally())
    return f"{tally.missing():.2f} %, category 5 {tally.missing(5):.2f} %"


def _figure(name: str, tallies: list[Tally], note: str = "") -> Figure:
    tally = sum(tallies, Tally())
    by = ", ".join(f"{n}: {tally.whole[n] / tally.asked[n]:.3f}" for n in sorted(tally.asked))
    notes = (f"all shown by category {by}", note)
    return Figure(f"evidence not all shown, {name}", tally.missing(), "%", None, "; ".join(filter(None, notes)))


def _join(names: list[str]) -> str:
    return f"{names[0]} for every dialogue" if len(set(names)) == 1 else ", ".join(names)


def _show_all(kind: str, name: str, number: int) -> Shown:
    """Ask all questions about a dialogue with this change."""
    dialogue = load_dialogue(number)
    keys = {flatten(turn.text): turn.key for turn in dialogue.turns}
    found = {budget: Tally() for budget in BUDGETS}
    with _changed(_CHANGES[kind, name]):
        for asked in dialogue.questions:
            question = asked["question"]
            likeness = _likeness(number, question) if kind == "vectors" else []
            for budget in BUDGETS:
                room = room_of(budget, question)
                ranked = recall.rank_memories(
                    question, dialogue.turns, words=_words(number), likeness=likeness, room=room
                )
                pages = {page.key for page in ranked.lay_out(room, COUNT).pages}
                evidence = [keys[flatten(dialogue.texts[turn])] in pages for turn in asked["evidence"]]
                found[budget].add(asked["category"], evidence)
    return found


@contextmanager
def _changed(change: Change) -> Iterator[None]:
    """Give the constants of recall other values in a block."""
    fields = {name: value for name, value in change.items() if name in memory_scores.Weights._fields}
    with ExitStack() as stack:
        for name in ("WITH_WORDS", "WITH_VECTORS"):
            stack.enter_context(patch.object(memory_scores, name, getattr(memory_scores, name)._replace(**fields)))
        for name in change.keys() - fields.keys():
            stack.enter_context(patch.object(memory_scores, name, change[name]))
        yield


@cache
def _words(number: int) -> WordCache:
    """Return the words of a dialogue, counted once."""
    return WordCache()


@cache
def _likeness(number: int, question: str) -> list[Likeness]:
    """Return the functions that compare the turns of a dialogue with a question, as recall does."""
    dialogue = load_dialogue(number)
    parsed = Question.parse(question, {turn.speaker for turn in dialogue.turns})
    vector = embed(embedder(), [parsed.embedded])[0]
    alone = (dialogue.vectors @ vector).tolist()
    together = (_with_neighbours(number) @ vector).tolist()
    return [lambda memories: alone, lambda memories: together]


@cache
def _with_neighbours(number: int) -> Any:
    dialogue = load_dialogue(number)
    return recall._add_neighbours(dialogue.vectors, dialogue.turns)
