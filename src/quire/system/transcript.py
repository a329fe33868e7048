"""The messages of exchanges in a JSON document: how they are written, and how they get their numbers back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from quire.errors import InvalidValue, shown
from quire.exchanges import FORMS, exchange_fields
from quire.messages import Message
from quire.pages import Form, Lifecycle, Mark
from quire.plan import Plan
from quire.providers import own
from quire.reader import Reader
from quire.records import Header
from quire.system.rules import choice

_STORED_FORMS = (Form.SUMMARY, Form.WINDOW)


def write(reader: Reader, header: Header) -> dict[str, Any]:
    """What a leaf's form says of its messages; empty for a text."""
    form: dict[str, Any] = {}
    if header.numbers:
        numbering = reader.numbering()
        form["messages"] = [
            msgspec.to_builtins(replace(reader.message(number).message, index=numbering.index(number)))
            for number in header.numbers
        ]
    if header.form in _STORED_FORMS:
        form["form"] = int(header.form)
    if header.mark is not Mark.NONE:
        form["mark"] = int(header.mark)
    if header.closed:
        form["closed"] = True
    if header.standin:
        form["standin"] = reader.index(reader.moved(header.standin))
    return form


def read(plan: Plan, pages: Mapping[str, Any], keys: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The numbers of the messages on every page of a document, stored anew unless they are here already."""
    found = sorted(_messages(pages), key=lambda item: item[2].index)
    numbers: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for page, place, message in found:
        plain = replace(message, index=-1)
        number = _known(plan, message.index, keys[page], plain)
        if number is None or number in taken:
            number = plan.add_message(keys[page], plain)
        taken.add(number)
        numbers.setdefault(page, {})[place] = number
        for call in message.tool_calls:
            plan.add_caller(call.id, keys[page])
    return {page: tuple(places[place] for place in sorted(places)) for page, places in numbers.items()}


def fields(
    plan: Plan, form: Mapping[str, Any], numbers: tuple[int, ...] | None, keys: Mapping[str, int], place: str
) -> dict[str, Any]:
    """The header fields that a page's messages and marks give it."""
    known: dict[str, Any] = {}
    if numbers:
        first, *results = (plan.message(number).message for number in numbers)
        _check_exchange(first, results, f"{place}.messages", marked=form.get("mark", 0) != Mark.NONE)
        known = {**exchange_fields(plan, numbers), "form": FORMS[first.role], "closed": form.get("closed") is True}
    elif form.get("form") in _STORED_FORMS:
        known = {"form": Form(form["form"]), "closed": form.get("closed") is True}
    mark = choice(Mark, form.get("mark", 0), f"{place}.mark")
    if mark is not Mark.NONE:
        if form.get("lifecycle") != Lifecycle.COLD_ARCHIVED:
            raise InvalidValue(f"The document cannot be read: {place}.mark is set, but the page is not in the archive.")
        known["mark"] = mark
        known["standin"] = keys.get(str(form.get("standin", "")), 0)
    return known


def _messages(pages: Mapping[str, Any]) -> Iterator[tuple[str, int, Message]]:
    """Every message of a document with its page and its place there."""
    for page, form in pages.items():
        listed = form.get("messages", [])
        place = f"pages[{shown(page)}].messages"
        if not isinstance(listed, list) or (listed and form.get("type") != "DetailPage"):
            raise InvalidValue(
                f"The document cannot be read: {place} is {shown(listed)}; a leaf has a list of messages."
            )
        for n, value in enumerate(listed):
            try:
                yield page, n, own.read(value, f"{place}[{n}]")
            except InvalidValue as error:
                raise InvalidValue(f"The document cannot be read: {error}") from None


def _check_exchange(first: Message, results: Sequence[Message], place: str, *, marked: bool) -> None:
    """Refuse what is no exchange: one message, or calls with their results."""
    calls = [call.id for call in first.tool_calls]
    for n, message in enumerate(results, 1):
        if message.role != "tool" or message.tool_call_id not in calls:
            raise InvalidValue(
                f"The document cannot be read: {place}[{n}] is no result of a call in {place}[0]; a page holds one"
                " message, or an assistant message with the results of its calls."
            )
        calls.remove(message.tool_call_id)
    if first.role == "tool" and not marked:
        raise InvalidValue(f"The document cannot be read: {place}[0] is a result without its call.")


def _known(plan: Plan, index: int, page: int, message: Message) -> int | None:
    """The number under which this very message already stands on this page."""
    numbering = plan.state.numbering()
    if not 0 <= index < numbering.length:
        return None
    number = numbering.number(index)
    record = plan.state.message(number)
    return number if (record.page, record.message) == (page, message) else None
