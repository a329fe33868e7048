"""What stands for folded messages: a name, a summary in one line, and an account of the facts in it.

The summary is extractive: what the user insisted on, what was asked and what was answered in the end, in the speakers'
own words, shortened, then facts as far as there is room. A fact that is not in it can be found: it stands word for word
in the text of a page below.

Better summaries: what a summariser of the caller's is given, and how its text takes the place of an extracted one.

It goes through the same gate: clipped to its share, with facts as far as there is room, and none lost. A page that
changed since keeps what it has.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from quire.core.exchanges import exchange_name
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.model.messages import Message, messages_to_text
from quire.model.pages import Visibility
from quire.model.text import MAX_DESCRIPTION, clip_at_word, collapse_whitespace
from quire.view.fold.fact_check import Gate, gate_of
from quire.view.fold.facts import constraints, facts, stands
from quire.view.options import LINES_SHARE
from quire.view.part_builder import page_line
from quire.view.parts import Account

Count = Callable[[str], int]
_END = re.compile(r"(?<=[。！？])|(?<=[!?])(?![A-Za-z0-9_=&/])|(?<=[.;])\s")
_SENTENCE = 160
_SHARE = 0.1
_FEW, _USUAL, _MANY = 24, 70, 160
"""The most tokens of a summary: in a small budget, so that some lines fit, in a usual one, and in a large one."""
_FACTS_SHARE = 0.55
_INSISTED_SHARE = 0.5
_TRIES = 6
"""So many facts that do not fit are passed over for shorter ones."""


def longest(lines: int) -> int:
    """How many tokens a summary may take at most, if all lines together may take so many."""
    return max(_FEW, min(_USUAL, lines // 20), min(_MANY, lines // _MANY))


def allowance(tokens: int, most: int) -> int:
    """How many tokens the summary of so many may take: at most a tenth."""
    return min(most, int(tokens * _SHARE))


def summarise_turns(
    name: str, messages: Sequence[Message], gate: Gate, limit: int, count: Count
) -> tuple[str, Account]:
    """One line for a few turns, in at most so many tokens; and the account of their facts."""
    asked = next((message.text for message in messages if message.role == "user"), "")
    said = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")
    insisted = _fitting(gate.constraints(), int(limit * _INSISTED_SHARE), count, known=name)
    prose = [_first(_after(name, asked)), _first(said)]
    return gated(name, _fitted(name, insisted, prose, gate.ordered(), limit, count), gate)


def summarise_chapters(lines: Sequence[tuple[str, str]], limit: int, count: Count) -> str:
    """One line for several folded ones, given by name and summary."""
    names = " · ".join(dict.fromkeys(name for name, _ in lines[1:]))
    heads = (summary.partition(" | ")[0] for _, summary in lines)
    insisted = dict.fromkeys(fact.rstrip(";") for head in heads for fact in constraints(head))
    ranks: dict[str, int] = {}
    for _, summary in lines:
        for fact, kind in facts(summary):
            ranks.setdefault(fact, kind)
    taken = _fitting(insisted, int(limit * _INSISTED_SHARE), count, known=lines[0][0])
    return _fitted(lines[0][0], taken, [names], sorted(ranks, key=ranks.__getitem__), limit, count)


def summarise_anew(name: str, summary: str, gate: Gate, limit: int, count: Count) -> str:
    """A summary that somebody wrote, within so many tokens, with facts as far as there is room and none lost."""
    text = within(summary, limit, count)
    if not text:
        return ""
    taken = _fitting(gate.ordered(), limit - count(f"{text} |"), count, known=f"{name} {text}")
    return gated(name, _joined(text, taken, limit, count), gate)[0]


def gated(name: str, summary: str, gate: Gate) -> tuple[str, Account]:
    """A summary with the facts that would be lost without it, and the account of all of them."""
    text = collapse_whitespace(summary)
    missing = gate.missing(f"{name}: {text}")
    if missing:
        text = collapse_whitespace(f"{' '.join(missing)} {text}")
    text = clip_at_word(text, MAX_DESCRIPTION)
    return text, gate.account(f"{name}: {text}")


def within(text: str, limit: int, count: Count) -> str:
    """The text in one line of at most so many tokens, cut at the end of a word, never inside an identifier."""
    text = collapse_whitespace(clip_at_word(text, 64 * limit))
    used = count(text)
    while text and used > limit:
        most = min(len(text) - 1, int(len(text) * limit / used) + 2)
        words = text[:most].rpartition(" ")[0]
        text = words.rstrip() if len(words) > most // 2 else clip_at_word(text, most)
        used = count(text)
    return text


def name_of(messages: Sequence[Message]) -> str:
    """What a chapter with these messages is called: what was asked first."""
    asked = next((message for message in messages if message.role == "user"), None)
    return exchange_name(asked or messages[0]) if messages else "Folded"


def _fitted(
    name: str, insisted: Sequence[str], prose: Sequence[str], ordered: Sequence[str], limit: int, count: Count
) -> str:
    """What was insisted on, then the prose, then facts, within so many tokens."""
    text = "; ".join(insisted)
    prose = [piece for piece in prose if piece and piece[:24] not in text]
    room = limit - (count(text) + 1 if text else 0)
    known = f"{name} {text} {' '.join(prose)}"
    reserved = sum(count(f" {fact}") for fact in _fitting(ordered, int(limit * _FACTS_SHARE), count, known=known))
    told = within("; ".join(prose), max(0, room - reserved - 2), count)
    text = "; ".join(filter(None, (text, told)))
    room = limit - count(f"{text} |") if text else limit
    taken = _fitting(ordered, room, count, known=f"{name} {text}")
    return _joined(text, taken, limit, count)


def _joined(text: str, taken: list[str], limit: int, count: Count) -> str:
    while True:
        whole = " | ".join(filter(None, (text, " ".join(taken))))
        if not taken or count(whole) <= limit:
            return whole
        taken = taken[:-1]  # tokens of a whole can be a few more than those of its pieces


def _fitting(ordered: Iterable[str], room: int, count: Count, known: str) -> list[str]:
    """The first facts that fit a room and do not stand in what is known already."""
    taken: list[str] = []
    tries = _TRIES
    for fact in ordered:
        if room <= 0 or not tries:
            break
        if len(fact) > 6 * room or (size := count(f" {fact}")) > room:
            tries -= 1
        elif not stands(fact, known) and not any(stands(fact, other) for other in taken):
            taken.append(fact)
            room -= size
    return taken


def _after(name: str, text: str) -> str:
    """What a text says after the words that its name already shows."""
    start = name.removesuffix("…")
    text = collapse_whitespace(clip_at_word(text, 8 * _SENTENCE))
    if start == name or not text.startswith(start):
        return "" if text == name else text
    return text[len(clip_at_word(text, len(start))) :].strip()


def _first(text: str) -> str:
    """The first sentence, or its beginning."""
    text = collapse_whitespace(clip_at_word(text, 4 * _SENTENCE))
    sentence = next((piece for piece in _END.split(text) if piece), "")
    return clip_at_word(sentence, _SENTENCE)


_MOST_CHARACTERS = 200_000


class Job(NamedTuple):
    """A folded page that is to be summarised: its text, how many tokens the summary may take, and what it was then."""

    key: int
    text: str
    tokens: int
    state: tuple[Any, ...]


class Better(NamedTuple):
    """What came back for a job."""

    job: Job
    summary: str


def jobs(plan: Plan, budget: int) -> list[Job]:
    """The pages that a plan folds, for a summariser; the newest last."""
    most = longest(int(budget * LINES_SHARE))
    return [
        Job(page.key, _text(plan, page), allowance(page.header.tokens, most), _state(plan, page))
        for page in plan.pages.values()
        if isinstance(page, PageRecord) and _is_folded(page) and not _was_folded(plan, page.key)
    ]


def sum_up_again(plan: Plan, lines: Iterable[PageRecord], most: int, count: Count) -> None:
    """Plan summaries for lines that lost theirs when something in them was taken out."""
    for page in lines:
        if page.header.line_tokens and not page.header.description and not page.header.pinned:
            _summed_up(plan, page, longest(most), count)


def _summed_up(plan: Plan, page: PageRecord, most: int, count: Count) -> PageRecord:
    inner = list(plan.members(page.key)) if page.header.folder else [page]
    inner = [
        child if child.header.description or not child.header.folder else _summed_up(plan, child, most, count)
        for child in inner
    ]
    if any(child.header.folder for child in inner):
        text = summarise_chapters([(child.header.name, child.header.description) for child in inner], most, count)
    else:
        gate, messages = gate_of(plan, inner)
        text = summarise_turns(page.header.name, messages, gate, allowance(page.header.tokens, most), count)[0]
    return plan.change(page, description=text, summary_tokens=count(text))


def improve(plan: Plan, found: Iterable[Better], count: Count) -> None:
    """Plan that these summaries take their places, where the page is still what was summarised."""
    for job, summary in found:
        page = plan.page(job.key)
        if not isinstance(page, PageRecord) or not _is_folded(page) or _state(plan, page) != job.state:
            continue
        pages = [page] if page.header.numbers or page.header.body else list(plan.members(page.key))
        gate = Gate() if any(inner.header.folder for inner in pages) else gate_of(plan, pages)[0]
        text = summarise_anew(page.header.name, summary, gate, job.tokens, count)
        if text:
            page = plan.change(page, description=text, summary_tokens=count(text))
            plan.change(page, line_tokens=count(page_line(plan.index(page.key), page.header)))


def _is_folded(page: PageRecord) -> bool:
    return page.header.visibility is Visibility.HIDDEN and page.header.line_tokens > 0


def _was_folded(plan: Plan, key: int) -> bool:
    before = plan.stored_page(key)
    return isinstance(before, PageRecord) and _is_folded(before)


def _state(reader: Reader, page: PageRecord) -> tuple[Any, ...]:
    """What must be as it was for a summary to hold."""
    header = page.header
    inner = [(child.key, child.header.numbers, child.header.body) for child in _members(reader, page)]
    return header.name, header.description, header.numbers, header.body, header.tokens, header.created, inner


def _text(reader: Reader, page: PageRecord) -> str:
    """What a page stands for: the messages with their speakers, or the lines of the chapters in it."""
    text = "\n".join(_pieces(reader, _members(reader, page) or [page]))
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _pieces(reader: Reader, pages: Sequence[PageRecord]) -> Iterator[str]:
    for page in pages:
        header = page.header
        if header.folder:
            yield f"{header.name}: {header.description}"
        elif header.numbers:
            yield messages_to_text(reader.message(number).message for number in header.numbers)
        elif header.body:
            yield reader.body(header.body)


def _members(reader: Reader, page: PageRecord) -> list[PageRecord]:
    return list(reader.members(page.key)) if page.header.folder else []
