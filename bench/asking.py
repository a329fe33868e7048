"""Many questions in one conversation, with recall at each: the evidence in the view, and the bill.

The recalled pages of earlier questions stay in the view until the next fold. So a question can be answered from them,
and a page is not sent twice. 0.1.0 recalled for each question again, in the whole share. The limits are its evidence
with two points less.
"""

import gzip
import json
from dataclasses import dataclass
from typing import Any

from bench.figures import Figure
from bench.recall import DIALOGUES, Tally, flatten, store_dialogue
from bench.thinking import CACHED

MISSING = {4_000: 27.4, 8_000: 19.5}
"""The limit of questions, of a hundred, with incomplete evidence in the view, by budget."""


@dataclass
class Bill:
    """The tokens of all views, those that the provider has cached, and the recalled ones."""

    calls: int = 0
    tokens: int = 0
    shared: int = 0
    recalled: int = 0


def run() -> list[Figure]:
    """Return all figures of many questions; none without the dialogues."""
    if not DIALOGUES.exists():
        return []
    return [figure for budget in MISSING for figure in _ask_all(budget)]


def _ask_all(budget: int) -> list[Figure]:
    tally, bill = Tally(), Bill()
    with gzip.open(DIALOGUES, "rt", encoding="utf-8") as lines:
        for line in lines:
            _ask(json.loads(line), budget, tally, bill)
    cost = (bill.tokens - (1 - CACHED) * bill.shared) / bill.calls
    note = f"{bill.calls} calls, {bill.recalled / bill.calls:.0f} tokens recalled for each"
    name = f"many questions in one conversation, {budget:,} tokens"
    return [
        Figure(f"evidence not all shown: {name}", tally.missing(), "%", MISSING[budget], tally.note(budget)),
        Figure(f"bill per call: {name}", cost, "tokens", None, note),
    ]


def _ask(told: dict[str, Any], budget: int, tally: Tally, bill: Bill) -> None:
    """Ask all questions about a dialogue one after the other, and answer them."""
    texts = {turn["id"]: turn["text"].strip() for session in told["sessions"] for turn in session["turns"]}
    context = store_dialogue(told, None, budget, 0)
    for asked in told["qa"]:
        if asked["category"] > 4 or not asked["evidence"] or not all(turn in texts for turn in asked["evidence"]):
            continue
        context.user(asked["question"])
        view = context.render(recall=True)
        shown = flatten("\n".join(message.text for message in view.messages))
        tally.add(asked["category"], [flatten(texts[turn]) in shown for turn in asked["evidence"]])
        bill.calls += 1
        bill.tokens += view.tokens
        bill.shared += view.shared_prefix
        bill.recalled += sum(part.tokens for part in view.tail if part.kind == "recalled")
        context.assistant(str(asked["answer"]))
