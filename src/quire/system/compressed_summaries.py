"""Compressed summaries: the pages that replace compressed messages.

A summary without a given text is extracted from the messages, in the words of their authors. No model is needed.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import Header, PageRecord, page_key, segment_number
from quire.model.messages import Message
from quire.model.pages import Form, Mark
from quire.model.text import MAX_DESCRIPTION, check_one_line, collapse_whitespace
from quire.system.rules import check_unpinned

_FACT = (
    r"https?://[^\s<>\"')\]]+"  # addresses
    r"|(?<![\w.~/-])(?:[\w.~-]{0,80}/){2,40}[\w.-]{1,80}"  # paths
    r"|\b[A-Za-z_]\w{0,80}(?:Error|Exception)\b"  # names of errors
    r"|\b\d{4}-\d{2}-\d{2}(?:T[\d:.Z+-]+)?"  # dates
    r"|\b[A-Z]{2,}-?\d[\w-]*\b"  # identifiers such as HAT136
    r"|\b\d[\d,.:]*\d\b"  # numbers of two digits and more
)
_LINE, _SHORTEST_LINE = 160, 48
_DETAIL, _LEAST_DETAIL = 4_000, 400
_SUMMARY = 400
_PART = 3
"""A summary has at most this part of the characters of its messages, unless they are few."""


def summarise(messages: Sequence[Message]) -> tuple[str, str]:
    """Return a summary in one line, and a longer one with a line for each message as far as there is room."""
    size = sum(len(message.text) + sum(len(call.arguments) for call in message.tool_calls) for message in messages)
    limit = min(_DETAIL, max(_LEAST_DETAIL, size // _PART))
    length = min(_LINE, max(_SHORTEST_LINE, limit // max(1, len(messages))))
    lines = [line for message in messages if (line := _line(message, length))]
    detail = _fit_lines(lines, limit, "\n")
    short = _fit_lines([_clip(line, _LINE // 2) for line in lines], _SUMMARY, " · ")
    facts = _facts(messages, known=detail)
    if facts:
        detail += "\n" + _clip("Also: " + ", ".join(facts), limit // 4)
    return short[:MAX_DESCRIPTION], detail


def _line(message: Message, length: int) -> str:
    """Return who said what: the first clauses of the text, and the calls."""
    from quire.core.titles import clip_clause  # late: its patterns are slow to compile

    text = clip_clause(collapse_whitespace(message.text), length)
    calls = ", ".join(f"{call.name}({_clip(collapse_whitespace(call.arguments), 60)})" for call in message.tool_calls)
    words = " → ".join(filter(None, (text, calls)))
    return f"{message.role.capitalize()}: {words}" if words else ""


def _facts(messages: Sequence[Message], known: str) -> list[str]:
    """Return names, numbers and addresses that are not in `known`, each once, in order."""
    texts = (message.text[:20_000] for message in messages)
    found = (match.group() for text in texts for match in re.finditer(_FACT, text))
    return list(dict.fromkeys(fact for fact in found if fact not in known))[:60]


def _fit_lines(lines: Sequence[str], limit: int, separator: str) -> str:
    """Return the lines that fit, from both ends towards the middle, with a note on what is left out."""

    def join(count: int) -> str:
        left = len(lines) - count
        note = [f"… {left} more …"] if left else []
        return separator.join([*lines[: (count + 1) // 2], *note, *lines[len(lines) - count // 2 :]])

    if len(join(len(lines))) <= limit:
        return join(len(lines))
    return join(max(0, bisect_right(range(len(lines)), limit, key=lambda count: len(join(count))) - 1))


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def add_summary(plan: Plan, run: Sequence[PageRecord], text: str | None) -> PageRecord:
    """Add a summary page for a run of messages at the place of the first one."""
    first = run[0]
    folder = plan.home_of(first) if first.is_cold or first.parent is None else first.parent
    rank = plan.rank_before(folder, first.key) if folder == first.parent else plan.append_rank(folder)
    header = Header(folder=False, **_summary_fields(plan, run, text), **plan.origin(), form=Form.SUMMARY)
    return plan.create(plan.next_key(segment_number(folder)), folder, rank, header)


SUMMARY_FIELDS = ("name", "description", "summary_tokens", "tokens", "clip", "body", "messages")
"""The fields of a page that hold a summary."""


def _summary_fields(plan: Plan, originals: Sequence[PageRecord], text: str | None) -> dict[str, Any]:
    messages = [plan.message(number).message for page in originals for number in page.header.numbers]
    many = f"{len(messages)} messages" if len(messages) > 1 else "1 message"
    clip = 0
    if text is None:
        short, detail = summarise(messages)
        clip = sum(page.header.tokens for page in originals)  # a summary is not shown longer than its messages
    else:
        short = check_one_line(" ".join(text.split())[:MAX_DESCRIPTION], "summary", MAX_DESCRIPTION)
        detail = text
    counts, body = (plan.count(short), plan.count(detail)), plan.add_body(detail)
    values = (f"Summary of {many}", short, *counts, clip, body, len(messages))
    return dict(zip(SUMMARY_FIELDS, values, strict=True))


def remake_summary(plan: Plan, key: int, folder: int | None, *, pinned_too: bool = False) -> None:
    """Write a summary again from the compressed messages that remain in a folder; remove it if there are none."""
    page = plan.page(plan.current_key(key))
    if not isinstance(page, PageRecord) or page.header.form is not Form.SUMMARY:
        return
    originals = list(compressed_pages(plan, key, folder))
    if originals:
        plan.change(page, **_summary_fields(plan, originals, None))
    else:
        if not pinned_too:
            check_unpinned(plan, page, "remove")
        plan.remove(page.key)


def read_originals(reader: Reader, summary: PageRecord) -> list[PageRecord]:
    """Return the compressed pages that a page summarises; none if it is not a summary, or after a cleanup."""
    if summary.header.form is not Form.SUMMARY:
        return []
    root = page_key(segment_number(summary.key), 0)
    folders = (summary.parent, root)  # a fold moves the summary into a chapter, not its messages
    found = (list(compressed_pages(reader, summary.key, folder)) for folder in folders)
    return next(filter(None, found), [])


def compressed_pages(reader: Reader, summary: int, folder: int | None) -> Iterator[PageRecord]:
    """Yield the compressed pages of a summary. They keep their places even if the summary moved."""
    for page in () if folder is None else reader.members(folder, cold=True):
        if page.header.mark is Mark.COMPRESSED and page.header.standin == summary:
            yield page
