"""Better summaries: what a summariser of the caller's is given, and how its text takes the place of an extracted one.

It goes through the same gate: clipped to its share, with facts as far as there is room, and none lost. A page that
changed since keeps what it has.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from quire.fold.gate import Gate, gate_of
from quire.fold.summaries import Count, allowance, longest, summarise_anew, summarise_chapters, summarise_turns
from quire.messages import as_text
from quire.pages import Visibility
from quire.plan import Plan
from quire.reader import Reader
from quire.records import PageRecord
from quire.view.lines import page_line
from quire.view.options import LINES_SHARE

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
    before = plan.stored(key)
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
            yield as_text(reader.message(number).message for number in header.numbers)
        elif header.body:
            yield reader.body(header.body)


def _members(reader: Reader, page: PageRecord) -> list[PageRecord]:
    return list(reader.members(page.key)) if page.header.folder else []
