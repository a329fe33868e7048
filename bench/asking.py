"""Many questions in one conversation, with recall at each: the evidence in the view, and the bill.

The recalled pages of earlier questions stay in the view until the next fold. So a question can be answered from them,
and a page is not sent twice. 0.1.0 recalled for each question again, in the whole share. The limits are its evidence
with two points less.
"""

from dataclasses import dataclass, field

from bench.figures import Figure
from bench.measure import in_processes
from bench.recall import Tally, can_run, dialogue_count, flatten, load_dialogue, store_dialogue
from bench.thinking import CACHED

MISSING = {4_000: 27.4, 8_000: 19.5}
"""The limit of questions, of a hundred, with incomplete evidence in the view, by budget."""


@dataclass
class Bill:
    """The shown evidence, the tokens of all views, those that the provider has cached, and the recalled ones."""

    evidence: Tally = field(default_factory=Tally)
    calls: int = 0
    tokens: int = 0
    shared: int = 0
    recalled: int = 0

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(
            self.evidence + other.evidence,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.shared + other.shared,
            self.recalled + other.recalled,
        )


def run() -> list[Figure]:
    """Return all figures of many questions; none without the dialogues."""
    if not can_run():
        return []
    jobs = [(number, budget) for budget in MISSING for number in range(dialogue_count())]
    bills = dict(zip(jobs, in_processes(_ask, jobs), strict=True))
    return [
        figure
        for budget in MISSING
        for figure in _figures(budget, sum((bills[number, budget] for number in range(dialogue_count())), Bill()))
    ]


def _figures(budget: int, bill: Bill) -> list[Figure]:
    cost = (bill.tokens - (1 - CACHED) * bill.shared) / bill.calls
    note = f"{bill.calls} calls, {bill.recalled / bill.calls:.0f} tokens recalled for each"
    name = f"many questions in one conversation, {budget:,} tokens"
    shown = bill.evidence
    return [
        Figure(f"evidence not all shown: {name}", shown.missing(), "%", MISSING[budget], shown.note(budget)),
        Figure(f"bill per call: {name}", cost, "tokens", None, note),
    ]


def _ask(number: int, budget: int) -> Bill:
    """Ask all questions about a dialogue one after the other, and answer them."""
    dialogue, bill = load_dialogue(number), Bill()
    context = store_dialogue(dialogue.told, None, budget, 0)
    for asked in dialogue.questions:
        if asked["category"] > 4:
            continue
        context.user(asked["question"])
        view = context.render(recall=True)
        shown = flatten("\n".join(message.text for message in view.messages))
        bill.evidence.add(asked["category"], [flatten(dialogue.texts[turn]) in shown for turn in asked["evidence"]])
        bill.calls += 1
        bill.tokens += view.tokens
        bill.shared += view.shared_prefix
        bill.recalled += sum(part.tokens for part in view.tail if part.kind == "recalled")
        context.assistant(str(asked["answer"]))
    return bill
