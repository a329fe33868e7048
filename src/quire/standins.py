"""Planning the summaries that stand for compressed messages."""

from collections.abc import Iterator, Sequence

from quire.extracts import summarise
from quire.pages import Form, Mark
from quire.plan import Plan
from quire.records import Header, PageRecord, segment_number
from quire.system.rules import unpinned
from quire.text import MAX_DESCRIPTION, one_line


def add_summary(plan: Plan, run: Sequence[PageRecord], text: str | None) -> PageRecord:
    """Put a page that stands for a run of messages where the first of them stands."""
    first = run[0]
    folder = plan.home_of(first) if first.is_cold or first.parent is None else first.parent
    rank = plan.rank_before(folder, first.key) if folder == first.parent else plan.append_rank(folder)
    header = Header(
        folder=False,
        name="",
        description="",
        **plan.origin(),
        form=Form.SUMMARY,
    )
    page = plan.create(plan.next_key(segment_number(folder)), folder, rank, header)
    return plan.change(page, **_summary_fields(plan, run, text))


def _summary_fields(plan: Plan, originals: Sequence[PageRecord], text: str | None) -> dict[str, object]:
    messages = [plan.message(number).message for page in originals for number in page.header.numbers]
    short, detail = summarise(messages) if text is None else (_one_line(text), text)
    many = f"{len(messages)} messages" if len(messages) > 1 else "1 message"
    return {
        "name": f"Summary of {many}",
        "description": short,
        "summary_tokens": plan.count(short),
        "tokens": plan.count(detail),
        "body": plan.add_body(detail),
        "messages": len(messages),
    }


def _one_line(text: str) -> str:
    return one_line(" ".join(text.split())[:MAX_DESCRIPTION], "summary", MAX_DESCRIPTION)


def remake_summary(plan: Plan, key: int, folder: int | None, *, pinned_too: bool = False) -> None:
    """Write the summary of compressed messages of a folder anew from those that are left; without any, it goes."""
    page = plan.page(plan.moved(key))
    if not isinstance(page, PageRecord) or page.header.form is not Form.SUMMARY:
        return
    originals = list(behind(plan, key, folder))
    if originals:
        plan.change(page, **_summary_fields(plan, originals, None))
    else:
        if not pinned_too:
            unpinned(plan, page, "remove")
        plan.remove(page.key)


def behind(plan: Plan, summary: int, folder: int | None) -> Iterator[PageRecord]:
    """The compressed pages that a summary stands for: they kept their places, wherever the summary is now."""
    for page in () if folder is None else plan.members(folder, cold=True):
        if page.header.mark is Mark.COMPRESSED and page.header.standin == summary:
            yield page
