"""The messages of a page in the JSON form: write them, read them, and check that they are one exchange."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from quire.core.exchanges import FORMS, exchange_fields
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import (
    Header,
    MessageRecord,
)
from quire.errors import InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import (
    Form,
    Lifecycle,
    Mark,
)
from quire.providers.originals import read_message
from quire.storage.base import MAX_KEY
from quire.system.rules import check_choice

_STORED_FORMS = (Form.SUMMARY, Form.WINDOW)
_LACKING = "[removed]"
_MOST_PLACES = 1_000
"""The most empty places for messages that a document lacks, beside two for each message."""


def refuse(place: str, what: str) -> NoReturn:
    """Raise `InvalidValue` with the place in a document."""
    raise InvalidValue(f"The document cannot be read: {place} {what}.")


def message_form(reader: Reader, header: Header) -> dict[str, Any]:
    """Return the fields of a leaf that describe its messages; empty for a text."""
    form: dict[str, Any] = {}
    if header.numbers:
        numbering = reader.numbering()
        form["messages"] = [_message_form(reader.message(number), numbering.index(number)) for number in header.numbers]
    if header.form in _STORED_FORMS:
        form["form"] = int(header.form)
    if header.mark is not Mark.NONE:
        form["mark"] = int(header.mark)
    if header.closed:
        form["closed"] = True
    if header.standin:
        form["standin"] = reader.index(reader.current_key(header.standin))
    return form


def _message_form(record: MessageRecord, index: int | None) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(replace(record.message, index=index))
    return {**form, "ids": list(record.ids)} if record.ids else form


def read_messages(plan: Plan, pages: Mapping[str, Any], keys: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the messages by page of a document. Messages that are not stored yet are added.

    In a new context they keep their indices: a message that the document lacks leaves an empty place.
    """
    found = sorted(_listed_messages(pages), key=lambda item: item[2].index)
    indices = [message.index for _, _, message in found]
    keeps = not plan.next_message and len(set(indices)) == len(indices) and min(indices, default=0) >= 0
    keeps = keeps and max(indices, default=0) < _MOST_PLACES + 2 * len(indices)
    numbers: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for page, place, message in found:
        plain = plan.redact_message(replace(message, index=-1))
        number = _find_message(plan, message.index, keys[page], plain)
        if number is None or number in taken:
            while keeps and plan.next_message < message.index:
                plan.add_message(MAX_KEY, Message(role="system", content=_LACKING))
            number = plan.add_message(keys[page], plain)
            for message_id in _ids(pages[page]["messages"][place], f"pages[{short_repr(page)}].messages[{place}]"):
                plan.set_id(number, message_id)
        taken.add(number)
        numbers.setdefault(page, {})[place] = number
        for call in plain.tool_calls:
            plan.add_caller(call, keys[page])
    return {page: tuple(places[place] for place in sorted(places)) for page, places in numbers.items()}


def message_fields(
    plan: Plan, form: Mapping[str, Any], numbers: tuple[int, ...] | None, keys: Mapping[str, int], place: str
) -> dict[str, Any]:
    """Return the header fields that are derived from a page's messages and marks."""
    known: dict[str, Any] = {}
    if numbers:
        first, *results = (plan.message(number).message for number in numbers)
        _check_exchange(first, results, f"{place}.messages", marked=form.get("mark", 0) != Mark.NONE)
        known = {**exchange_fields(plan, numbers), "form": FORMS[first.role], "closed": form.get("closed") is True}
    elif form.get("form") in _STORED_FORMS:
        known = {"form": Form(form["form"]), "closed": form.get("closed") is True}
    mark = check_choice(Mark, form.get("mark", 0), f"{place}.mark")
    if mark is not Mark.NONE:
        if form.get("lifecycle") != Lifecycle.COLD_ARCHIVED:
            refuse(f"{place}.mark", "is set, but the page is not in the archive")
        known["mark"] = mark
        known["standin"] = keys.get(str(form.get("standin", "")), 0)
    return known


def _ids(form: Mapping[str, Any], place: str) -> list[str]:
    """Return the ids that a program gave a message."""
    found = form.get("ids", [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        refuse(f"{place}.ids", f"is {short_repr(found)}; a list of texts is needed")
    return found


def _listed_messages(pages: Mapping[str, Any]) -> Iterator[tuple[str, int, Message]]:
    """Yield every message of a document with its page and its position there."""
    for page, form in pages.items():
        listed = form.get("messages", [])
        place = f"pages[{short_repr(page)}].messages"
        if not isinstance(listed, list) or (listed and form.get("type") != "DetailPage"):
            refuse(place, f"is {short_repr(listed)}; a leaf has a list of messages")
        for n, value in enumerate(listed):
            try:
                yield page, n, read_message(value, f"{place}[{n}]")
            except InvalidValue as error:
                fact = error.fact if error.argument is None else f"{error.argument} {error.fact}"
                raise InvalidValue(f"The document cannot be read: {fact}", *error.hints) from None


def _check_exchange(first: Message, results: Sequence[Message], place: str, *, marked: bool) -> None:
    """Raise `InvalidValue` unless it is one exchange: one message, or calls with their results."""
    calls = [call.id for call in first.tool_calls]
    for n, message in enumerate(results, 1):
        if message.role != "tool" or message.tool_call_id not in calls:
            refuse(
                f"{place}[{n}]",
                f"is no result of a call in {place}[0]; a page holds one message, or an assistant message with the"
                " results of its calls",
            )
        calls.remove(message.tool_call_id)
    if first.role == "tool" and not marked:
        refuse(f"{place}[0]", "is a result without its call")


def _find_message(plan: Plan, index: int, page: int, message: Message) -> int | None:
    """Return the number of an equal message that is already on this page."""
    numbering = plan.state.numbering()
    if not 0 <= index < numbering.length:
        return None
    number = numbering.number(index)
    record = plan.state.message(number)
    return number if (record.page, record.message) == (page, message) else None
