"""The messages of a page in the JSON form, and the open batches: write them, read them, and check them."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from quire.core.codec import touched_page
from quire.core.exchanges import FORMS, exchange_fields
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PAGE_CODE, Batch, Header, PageRecord, Touched
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.model.pages import Form, Lifecycle, Mark
from quire.providers.originals import read_message
from quire.storage.contract import MAX_KEY
from quire.system.rules import check_choice, check_whole_number
from quire.system.undo import earlier_than

_STORED_FORMS = (Form.SUMMARY, Form.WINDOW)
_LACKING = "[removed]"
_MOST_PLACES = 1_000
"""The most empty places for messages that a document lacks, beside two for each message."""


def place_of(index: str) -> str:
    """Return the place of a page in a document, for errors."""
    return f"pages[{short_repr(index)}]"


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Add the place in the document to the errors of a block. Their fields get the names of the JSON form."""
    try:
        yield
    except InvalidOperation as error:
        if error.argument is not None:
            error.argument = re.sub("_([a-z])", lambda found: found[1].upper(), error.argument)
        error.name_place(place)
        raise


def message_form(reader: Reader, header: Header) -> dict[str, Any]:
    """Return the fields of a leaf that describe its messages; empty for a text."""
    form: dict[str, Any] = {}
    for number in header.numbers:
        record, index = reader.message(number), reader.numbering().index(number)
        message: dict[str, Any] = msgspec.to_builtins(replace(record.message, index=index))
        form.setdefault("messages", []).append(message | ({"ids": list(record.ids)} if record.ids else {}))
    if header.form in _STORED_FORMS:
        form["form"] = int(header.form)
    if header.mark is not Mark.NONE:
        form["mark"] = int(header.mark)
    if header.closed:
        form["closed"] = True
    if header.standin:
        form["standin"] = reader.index(reader.current_key(header.standin))
    return form


def read_messages(
    plan: Plan, pages: Mapping[str, Any], keys: Mapping[str, int]
) -> tuple[dict[str, tuple[int, ...]], dict[int, int]]:
    """Return the numbers of the messages by page, and by their index in the document. New messages are added.

    In a new context they keep their indices: a message that the document lacks leaves an empty place.
    """
    found = sorted(_listed_messages(pages), key=lambda item: item[2].index)
    by_index: dict[int, int] = {message.index: -1 for _, _, message in found}
    keeps = not plan.next_message and len(by_index) == len(found) and min(by_index, default=0) >= 0
    keeps = keeps and max(by_index, default=0) < _MOST_PLACES + 2 * len(found)
    numbers: dict[str, dict[int, int]] = {}
    taken: set[int] = set()
    for page, place, message in found:
        plain = plan.redact_message(replace(message, index=-1))
        number = _find_message(plan, message.index, keys[page], plain, taken)
        if number is None:
            while keeps and plan.next_message < message.index:
                plan.add_message(MAX_KEY, Message(role="system", content=_LACKING))
            number = plan.add_message(keys[page], plain)
            with naming(f"{place_of(page)}.messages[{place}]"):
                for message_id in _ids(pages[page]["messages"][place]):
                    plan.set_id(number, message_id)
        taken.add(number)
        numbers.setdefault(page, {})[place] = by_index[message.index] = number
        for call in plain.tool_calls:
            plan.add_caller(call, keys[page])
    return {page: tuple(known for _, known in sorted(each.items())) for page, each in numbers.items()}, by_index


def message_fields(
    plan: Plan, form: Mapping[str, Any], numbers: Sequence[int] | None, keys: Mapping[str, int]
) -> dict[str, Any]:
    """Return the header fields that are derived from a page's messages and marks."""
    known: dict[str, Any] = {}
    mark = check_choice(Mark, form.get("mark", 0), "mark")
    if numbers:
        first, *results = (plan.message(number).message for number in numbers)
        _check_exchange(first, results, marked=mark is not Mark.NONE)
        known = {**exchange_fields(plan, numbers), "form": FORMS[first.role], "closed": form.get("closed") is True}
    elif form.get("form") in _STORED_FORMS:
        known = {"form": Form(form["form"]), "closed": form.get("closed") is True}
    if mark is not Mark.NONE:
        if form.get("lifecycle") != Lifecycle.COLD_ARCHIVED:
            raise InvalidValue("is set, but the page is not in the archive.", argument="mark")
        known |= {"mark": mark, "standin": keys.get(str(form.get("standin", "")), 0)}
    return known


def batch_form(state: State, batch: Batch) -> dict[str, Any]:
    """Return the first message of a batch, and what it marked: the exchanges as they were when it was opened."""
    numbering = state.numbering()
    before: dict[str, Any] = {}
    for key, old in earlier_than(state, batch).pages.items():
        page = state.page(key)
        if not isinstance(page, PageRecord):
            continue
        if isinstance(old, PageRecord) and old.header.numbers:
            messages = [numbering.index(number) for number in old.header.numbers]
            known = {"lifecycle": int(old.header.lifecycle), "messages": messages}
            before[state.index(key)] = message_form(state, old.header) | known
        elif not isinstance(old, PageRecord) and (page.header.form is Form.SUMMARY or state.in_system(page)):
            before[state.index(key)] = None
    return {"boundary": numbering.index(batch.boundary) or 0, "before": before}


def read_batches(
    plan: Plan, forms: Sequence[Any], keys: Mapping[str, int], numbers: Mapping[int, int]
) -> Iterator[Batch]:
    """Yield the open batches of a document, outermost first. `numbers` are those of its messages by their indices."""
    least = 0
    for n, form in enumerate(forms):
        given = form if isinstance(form, dict) else {"boundary": form}
        boundary = check_whole_number(given.get("boundary"), f"batches[{n}]")
        above = max((index for index in numbers if index < boundary), default=-1)
        number = numbers.get(above, -1) + boundary - above  # messages between them may have been removed
        following = [number for index, number in numbers.items() if index >= boundary]
        least = max(least, min(number, plan.next_message, *following))
        before = given.get("before", {})
        with naming(f"batches[{n}].before"):
            if not isinstance(before, dict):
                raise InvalidValue(f"is {short_repr(before)}; an object is needed.")
            marks = tuple(_page_before(plan, index, old, keys, numbers) for index, old in before.items())
        yield Batch(least, plan.seq, marks)


def _page_before(plan: Plan, index: str, form: Any, keys: Mapping[str, int], numbers: Mapping[int, int]) -> Touched:
    """Return a page as it was when a batch was opened."""
    page = plan.page(keys[index]) if index in keys else None
    if not isinstance(page, PageRecord) or not (form is None or isinstance(form, dict)):
        raise InvalidValue(f"has {short_repr(index)}; pages of the document as they were before the batch are needed.")
    if form is None:
        return Touched(PAGE_CODE, page.key)
    messages = form.get("messages")
    if not isinstance(messages, list):
        raise InvalidValue(f"is {short_repr(messages)}; a list of message indices is needed.", argument="messages")
    with naming(place_of(index)):
        lifecycle = check_choice(Lifecycle, form.get("lifecycle", 0), "lifecycle")
        fields = message_fields(plan, form, tuple(numbers[each] for each in messages if each in numbers), keys)
    header = replace(page.header, **{"mark": Mark.NONE, "standin": 0, "lifecycle": lifecycle, **fields})
    return touched_page(page.key, replace(page, header=header))


def _ids(form: Mapping[str, Any]) -> list[str]:
    """Return the ids that a program gave a message."""
    found = form.get("ids", [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise InvalidValue(f"is {short_repr(found)}; a list of texts is needed.", argument="ids")
    return found


def _listed_messages(pages: Mapping[str, Any]) -> Iterator[tuple[str, int, Message]]:
    """Yield every message of a document with its page and its position there."""
    for page, form in pages.items():
        listed = form.get("messages", [])
        place = f"{place_of(page)}.messages"
        if not isinstance(listed, list) or (listed and form.get("type") != "DetailPage"):
            raise InvalidValue(f"is {short_repr(listed)}; a leaf has a list of messages.", argument=place)
        for n, value in enumerate(listed):
            yield page, n, read_message(value, f"{place}[{n}]")


def _check_exchange(first: Message, results: Sequence[Message], *, marked: bool) -> None:
    """Raise `InvalidValue` unless it is one exchange: one message, or calls with their results."""
    calls = [call.id for call in first.tool_calls]
    for n, message in enumerate(results, 1):
        if message.role != "tool" or message.tool_call_id not in calls:
            raise InvalidValue(
                "is no result of a call in messages[0]; a page holds one message, or an assistant message with the"
                " results of its calls.",
                argument=f"messages[{n}]",
            )
        calls.remove(message.tool_call_id)
    if first.role == "tool" and not marked:
        raise InvalidValue("is a result without its call.", argument="messages[0]")


def _find_message(plan: Plan, index: int, page: int, message: Message, taken: Container[int]) -> int | None:
    """Return the number of an equal message that is, or was, on this page; its index may have changed since."""
    stored, numbering = plan.state.page(page), plan.state.numbering()
    numbers = stored.header.numbers if isinstance(stored, PageRecord) else ()
    if 0 <= index < numbering.length:
        numbers = (numbering.number(index), *numbers)
    known = ((number, plan.state.message(number)) for number in numbers if number not in taken)
    return next((number for number, record in known if (record.page, record.message) == (page, message)), None)
