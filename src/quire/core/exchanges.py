"""Exchanges and the chapters above them: derive header fields from messages, and update chapters that lose messages.

The name and the summary of a chapter must not keep the words of messages that leave the conversation.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quire.core.plan import Plan
from quire.core.records import Gone, PageRecord, page_key, segment_number
from quire.model.messages import Message, Role, count_message_tokens
from quire.model.pages import Form, Lifecycle, Mark, Visibility
from quire.model.text import clip_at_word, collapse_whitespace

FORMS: Final[Mapping[Role, Form]] = {
    "user": Form.USER,
    "assistant": Form.ASSISTANT,
    "system": Form.SYSTEM,
    "tool": Form.TOOL,
}
"""The form of an exchange by the role of its first message."""

_NAME = 32
_LONGEST_TURN = 64
_REMOVED = (Mark.DELETED, Mark.REPLACED, Mark.ENDED)


def exchange_fields(plan: Plan, numbers: Sequence[int]) -> dict[str, Any]:
    """Return the header fields that are derived from the messages of an exchange."""
    messages = [plan.message(number).message for number in numbers]
    pending = [call.id for message in messages for call in message.tool_calls]
    for message in messages:
        if message.tool_call_id in pending:
            pending.remove(message.tool_call_id)
    return {
        "numbers": tuple(numbers),
        "messages": len(messages),
        "pending": tuple(pending),
        "tokens": sum(count_message_tokens(message, plan.count) for message in messages),
    }


def exchange_name(message: Message) -> str:
    """Return a few words that distinguish an exchange from others."""
    words = _first_words(message.text) or _first_words(", ".join(call.name for call in message.tool_calls))
    if not words and isinstance(message.content, list):
        words = _first_words(", ".join(str(part.get("type")) for part in message.content))
    words = words or message.role
    return words if len(words) <= _NAME else (clip_at_word(words, _NAME - 3) or words[: _NAME - 3]) + "…"


def _first_words(text: str) -> str:
    """Return the first words of a text, without line breaks and control characters."""
    start = " ".join((clip_at_word(text, 2 * _NAME) or text[: 2 * _NAME]).split())
    return start if start.isprintable() else collapse_whitespace(start)


def clear_stale_chapters(plan: Plan) -> None:
    """Clear the folded lines that contain words of messages which a plan removes or replaces.

    A chapter gets the name of its first remaining page. It has no summary until the next fold. An empty chapter is
    removed.
    """
    changed = ((key, now) for key, now in plan.pages.items() if key not in plan.new_keys)
    for page in [old for key, now in changed if (old := _page_with_lost_messages(plan, key, now))]:
        now = plan.page(page.key)
        if isinstance(now, PageRecord) and now.header.line_tokens and not now.is_cold:
            plan.change(now, description="", summary_tokens=0)
        for chapter in list(_chapters_above(plan, page)):
            rename_chapter(plan, chapter.key)


def unfold_last_turn(plan: Plan, line: PageRecord) -> None:
    """Unfold the last turn of the folded line at the end of the conversation: the last user message is never folded."""
    turn = list(_last_turn(plan, line))
    if not turn or turn[0].header.form is not Form.USER:
        return
    root = page_key(segment_number(line.key), 0)
    for page in turn:
        above = [chapter.key for chapter in _chapters_above(plan, page)]
        if page.parent != root:
            page = plan.place(page, root, plan.append_rank(root))
        plan.change(page, visibility=Visibility.EXPANDED)
        for chapter in above:
            rename_chapter(plan, chapter)


def _last_turn(plan: Plan, line: PageRecord) -> list[PageRecord]:
    """Return the exchanges at the end of a folded line, starting with the last user message."""
    turn: list[PageRecord] = []
    for page in plan.newest_leaves(line.key) if line.header.folder else (line,):
        if page.header.numbers and page.header.lifecycle is Lifecycle.ACTIVE:
            turn.insert(0, page)
            if page.header.form is Form.USER or len(turn) == _LONGEST_TURN:
                break
    return turn


def _page_with_lost_messages(plan: Plan, key: int, page: PageRecord | Gone) -> PageRecord | None:
    """Return the previous version of a page if this plan takes messages of it out of the conversation."""
    old = plan.stored_page(key)
    if not isinstance(old, PageRecord) or not old.header.numbers or old.is_cold:
        return None
    left = set() if isinstance(page, Gone) or page.header.mark in _REMOVED else set(page.header.numbers)
    return None if left.issuperset(old.header.numbers) else old


def _chapters_above(plan: Plan, page: PageRecord) -> Iterator[PageRecord]:
    """Yield the chapters above a page, nearest first, without those that the plan removes or writes itself."""
    key = page.parent
    while key is not None:
        above = plan.page(key)
        if not isinstance(above, PageRecord):  # the plan removes it; the chapters above its old place have its words
            above = plan.stored_page(key)
        elif above.header.form is Form.CHAPTER and not (key in plan.pages and above.header.description):
            yield above
        key = above.parent if isinstance(above, PageRecord) else None


def rename_chapter(plan: Plan, key: int) -> None:
    """Give a chapter the name of its first page and clear its summary; remove the chapter if it is empty."""
    chapter = plan.page(key)
    if not isinstance(chapter, PageRecord):
        return
    children = list(plan.members(key))
    if not children:
        if not chapter.header.pinned:
            plan.remove(key)
        return
    plan.change(
        chapter,
        name=children[0].header.name,
        description="",
        summary_tokens=0,
        tokens=sum(child.header.tokens for child in children),
        messages=sum(child.header.messages for child in children),
    )
