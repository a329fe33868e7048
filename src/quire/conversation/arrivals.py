"""Arrivals: plan which page receives a new message."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from quire.core.exchanges import FORMS, exchange_fields, exchange_name
from quire.core.plan import Plan
from quire.core.reader import Reader, slot_of
from quire.core.records import GAPS, Header, PageRecord, call_key, message_id_key, page_key, segment_number
from quire.errors import Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.clock import to_milliseconds
from quire.model.messages import Message, ToolCall, count_message_tokens
from quire.model.pages import Form, Lifecycle, Mark, SegmentType
from quire.model.text import MAX_NAME, collapse_whitespace, is_spelled, spell_id, spell_name
from quire.providers import format_messages, parse
from quire.providers.legal_form import find_original_name, rename_calls
from quire.system.compressed_summaries import remake_summary

PROMPT = "System prompt"


class InsertPosition(Struct, frozen=True, gc=False):
    """The place of a new exchange: in a folder, before one of its children or (None) at its end."""

    folder: int
    before: int | None = None


def receive(plan: Plan, message: Message, place: InsertPosition | None = None, mark: Mark = Mark.NONE) -> int:
    """Plan the arrival of a message at the end of the conversation or at a place in it; return its number.

    A result joins the exchange that made the call. A system message before all others is the prompt. A user or
    assistant message at the end of the conversation closes the exchange that waits for results. A message with a time
    of its own gives this time to its page. A message with a mark is stored at the end and not shown.
    """
    plan.moment = plan.now if message.at is None else to_milliseconds(message.at)
    plain = plan.redact_message(message)
    number = _receive(plan, plain, place) if mark is Mark.NONE else _add(plan, plain, end_of_conversation(plan), mark)
    plan.moment = plan.now
    return number


def _receive(plan: Plan, message: Message, place: InsertPosition | None) -> int:
    if message.role == "tool":
        return add_result(plan, message)
    if message.tool_calls:
        message = _with_original_names(plan, message)
    if message.role == "system" and (segment := plan.first_segment(SegmentType.SYSTEM)) is not None and _is_first(plan):
        return _add(plan, message, InsertPosition(page_key(segment, 0)))
    end = end_of_conversation(plan)
    if place not in (None, end) or message.role == "system":
        return _add(plan, message, place or end)
    if message.origin == "responses" and (page := _continued_exchange(plan, message)) is not None:
        return _join(plan, page, message)
    waiting = plan.waiting_exchange()
    if waiting is not None:
        open_page = plan.page(plan.current_key(waiting))
        if isinstance(open_page, PageRecord):
            plan.change(open_page, closed=True)
    number = _add(plan, message, end)
    if waiting is not None or message.tool_calls:
        plan.wait_for(plan.message(number).page if message.tool_calls else None)
    return number


def find_message(reader: Reader, message_id: str) -> int | None:
    """Return the number of the message in the conversation with this id, or None."""
    for key in reversed(reader.callers(message_id_key(message_id))):
        page = reader.page(reader.current_key(key))
        if isinstance(page, PageRecord) and page.header.mark is Mark.NONE:
            for number in page.header.numbers:
                if message_id in reader.message(number).ids:
                    return number
    return None


def store_marked(plan: Plan, message: Message, mark: Mark = Mark.UNSHOWABLE) -> int:
    """Store a message at the end of the conversation with a mark, so that it is not shown; return its number."""
    return receive(plan, message, mark=mark)


def mark_page(plan: Plan, page: PageRecord, mark: Mark, standin: int = 0) -> None:
    """Take the messages of a page out of the conversation. `standin` is the key of their summary."""
    plan.change(page, mark=mark, standin=standin, lifecycle=Lifecycle.COLD_ARCHIVED)


def set_prompt(plan: Plan, message: Message) -> int:
    """Set the system prompt, or a further one with the message's name. The same text again changes nothing."""
    segment = plan.first_segment(SegmentType.SYSTEM)
    if segment is None:
        raise InvalidOperation(
            "This context has no SYSTEM segment for a prompt.", Hint("add_segment", purpose="to add one")
        )
    message = plan.redact_message(message)
    root = page_key(segment, 0)
    for page in plan.members(root):
        number = page.header.numbers[0] if page.header.form is Form.SYSTEM else None
        if number is not None and (known := plan.message(number).message).name == message.name:
            is_same = (known.content, known.role) == (message.content, message.role)
            return number if is_same else replace_message(plan, page, number, message)
    return _add(plan, message, InsertPosition(root))


def replace_message(plan: Plan, page: PageRecord, number: int, message: Message) -> int:
    """Replace one of a page's messages on the same page; return the number of the new message."""
    from quire.core.titles import has_given_name  # late: its patterns are slow to compile

    fresh = plan.add_message(page.key, message)
    numbers = tuple(fresh if old == number else old for old in page.header.numbers)
    fields = exchange_fields(plan, numbers)
    if not has_given_name(page, plan.message(number).message):
        fields["name"] = exchange_name(message)
    plan.change(page, **fields)
    return fresh


def add_result(plan: Plan, message: Message) -> int:
    """Add a tool's result to its call; return its number. The same result again changes nothing.

    Raises `InvalidValue` if no such call is known, `InvalidOperation` if it has another result already.
    """
    call_id = message.tool_call_id or ""
    page = exchange_awaiting(plan, call_id)
    if page is not None:
        return _add_to_exchange(plan, page, message)
    for number, known in _messages_calling(plan, call_id):
        if known.tool_call_id == call_id:
            if known.content == message.content:
                return number
            index = plan.numbering().index(number)
            raise InvalidOperation(
                f"Call {short_repr(call_id)} has a result already, message {index}, and this one differs.",
                Hint("conversation.replace", arguments=f"{index}, …", purpose="to change it"),
            )
    original = _original_id(plan, call_id)
    if original is not None:
        return add_result(plan, rename_calls(message, str, lambda _: original))
    waiting = plan.open_exchange()
    ids = ", ".join(map(repr, waiting.header.pending)) if waiting else "none"
    unknown = InvalidValue(f"No message made the call {short_repr(call_id)}; calls that wait for a result: {ids}.")
    raise plan.state.outdated_error() or unknown  # another writer may just have added the call


def pending_calls(reader: Reader) -> list[ToolCall]:
    """Return the calls of the open exchange without a result, in order."""
    page = reader.open_exchange()
    if page is None:
        return []
    missing = list(page.header.pending)
    found: list[ToolCall] = []
    for number in page.header.numbers:
        for call in reader.message(number).message.tool_calls:
            if call.id in missing:
                missing.remove(call.id)
                found.append(call)
    return found


def close_calls(plan: Plan) -> list[ToolCall]:
    """Stop waiting for the results of the open exchange; return the calls without a result."""
    calls = pending_calls(plan)
    page = plan.open_exchange()
    if page is not None:
        plan.change(page, closed=True)
        plan.wait_for(None)
    return calls


def end_of_conversation(plan: Plan) -> InsertPosition:
    """Return the end of the conversation."""
    return InsertPosition(page_key(require_conversation(plan), 0))


def require_conversation(reader: Reader) -> int:
    """Return the number of the conversation's segment. Raises `InvalidOperation` if there is none."""
    number = reader.conversation()
    if number is None:
        raise InvalidOperation(
            "This context has no USER segment for a conversation.", Hint("add_segment", purpose="to add one")
        )
    return number


def _add(plan: Plan, message: Message, place: InsertPosition, mark: Mark = Mark.NONE) -> int:
    """Add a page with a message. A page of the system segment is a prompt: it is pinned and has the message's name."""
    folder, before = place.folder, place.before
    rank = plan.append_rank(folder) if before is None else plan.rank_before(folder, before)
    is_prompt = message.role == "system" and segment_number(folder) == plan.first_segment(SegmentType.SYSTEM)
    key = plan.next_key(segment_number(folder))
    number = plan.add_message(key, message)
    header = Header(
        folder=False,
        name=collapse_whitespace(message.name or "")[:MAX_NAME] or PROMPT if is_prompt else exchange_name(message),
        description="",
        **plan.origin(),
        tokens=count_message_tokens(message, plan.count),
        messages=1,
        lifecycle=Lifecycle.ACTIVE if mark is Mark.NONE else Lifecycle.COLD_ARCHIVED,
        pinned=is_prompt,
        numbers=(number,),
        pending=tuple(call.id for call in message.tool_calls),
        form=FORMS[message.role],
        mark=mark,
    )
    plan.create(key, folder, rank, header)
    for call in message.tool_calls:
        plan.add_caller(call, key)
    return number


def _continued_exchange(plan: Plan, message: Message) -> PageRecord | None:
    """Return the exchange that an item of the Responses API continues: one answer arrives item by item."""
    page = next(plan.newest_leaves(), None) if message.role == "assistant" else None
    if page is None or page.header.form is not Form.ASSISTANT or len(page.header.numbers) != 1 or page.header.closed:
        return None
    known = plan.message(page.header.numbers[0]).message
    sources = [(message.meta.get(key), known.meta.get(key)) for key in ("model", "id")]
    another = any(by is not None and before is not None and by != before for by, before in sources)  # of two responses
    return page if known.origin == "responses" and not another else None


def _join(plan: Plan, page: PageRecord, message: Message) -> int:
    """Replace the messages of an answer by one that includes this item; return its number."""
    number = page.header.numbers[0]
    known = plan.message(number).message
    whole = parse([*format_messages([known], "responses"), *format_messages([message], "responses")], "responses")
    if len(whole) != 1:
        return _add(plan, message, end_of_conversation(plan))
    joined = replace(whole[0], meta={**known.meta, **message.meta}, at=message.at or known.at)
    fresh = replace_message(plan, page, number, joined)
    plan.set_sent(fresh, plan.message(number).sent)
    for known_id in plan.message(number).ids:
        plan.set_id(fresh, known_id)
    for call in message.tool_calls:
        plan.add_caller(call, page.key)
    plan.wait_for(page.key if whole[0].tool_calls else None)
    return fresh


def _add_to_exchange(plan: Plan, page: PageRecord, message: Message) -> int:
    """Add a result to the page of the exchange that waits for it; return its number."""
    header = page.header
    number = plan.add_message(page.key, message)
    pending = list(header.pending)
    pending.remove(message.tool_call_id or "")
    plan.change(
        page,
        numbers=(*header.numbers, number),
        messages=header.messages + 1,
        pending=tuple(pending),
        tokens=header.tokens + count_message_tokens(message, plan.count),
    )
    if not pending and plan.waiting_exchange() == page.key:
        plan.wait_for(None)
    if header.mark is Mark.COMPRESSED:
        remake_summary(plan, header.standin, page.parent)
    return number


def exchange_awaiting(plan: Plan, call_id: str) -> PageRecord | None:
    """Return the newest exchange that waits for the result of a call, marked ones last."""
    key = plan.waiting_exchange()
    page = None if key is None else plan.page(key)
    if isinstance(page, PageRecord) and call_id in page.header.pending and plan.next_message - 1 in page.header.numbers:
        return page  # no other message arrived since: no search is needed
    return next((page for page in _exchanges_calling(plan, call_id) if call_id in page.header.pending), None)


def _exchanges_calling(plan: Plan, call_id: str) -> list[PageRecord]:
    """Return the exchanges that may have made a call with this id, newest first, marked ones last."""
    found = (plan.page(plan.current_key(key)) for key in reversed(plan.callers(call_key(call_id))))
    pages = [page for page in found if isinstance(page, PageRecord)]
    return sorted(pages, key=lambda page: page.header.mark is not Mark.NONE)


def _messages_calling(plan: Plan, call_id: str) -> Iterator[tuple[int, Message]]:
    """Yield the messages of these exchanges with their numbers. An exchange is also found by a spelling of its call."""
    for page in _exchanges_calling(plan, call_id):
        for number in page.header.numbers:
            yield number, plan.message(number).message


def _with_original_names(plan: Plan, message: Message) -> Message:
    """Return a message with the original names of its tools instead of the spellings that the provider got."""
    found: dict[str, str] = {}
    for name in {call.name for call in message.tool_calls if is_spelled(call.name)}:
        known = (call.name for _, other in _messages_calling(plan, name) for call in other.tool_calls)
        original = find_original_name(name) or next((known for known in known if spell_name(known) == name), None)
        if original is not None:
            found[name] = original
    return rename_calls(message, lambda name: found.get(name, name), str) if found else message


def _original_id(plan: Plan, call_id: str) -> str | None:
    """Return the original id of a call that was sent to a provider with this id; None if there is none.

    The id is sent in another spelling if it is not legal, and with a number if it was used before.
    """
    if is_spelled(call_id):
        known = (call.id for _, message in _messages_calling(plan, call_id) for call in message.tool_calls)
        return next((found for found in known if found != call_id and spell_id(found) == call_id), None)
    repeated, _, number = call_id.rpartition("_")
    uses = range(2, len(plan.callers(call_key(repeated))) + 1) if number.isdecimal() else ()
    return repeated if number in map(str, uses) and exchange_awaiting(plan, repeated) else None


def _is_first(plan: Plan) -> bool:
    """Return True if only prompts have arrived so far."""
    conversation = plan.conversation()
    if conversation is None or plan.counters[conversation].next == 1:
        return True
    folders = (segment_number(plan.message(number).page) for number in range(plan.next_message))
    return plan.note(GAPS) is None and conversation not in folders  # messages that were destroyed had arrived


def place_before(plan: Plan, number: int) -> InsertPosition:
    """Return the place before another message; inside an exchange, the place after that exchange.

    If that message is not in the conversation, it is the place before the next one that is.
    """
    conversation, numbering = require_conversation(plan), plan.numbering()
    root = page_key(conversation, 0)
    for at in range(number, plan.next_message):
        page = plan.page_of(at) if numbering.index(at) is not None else None
        if page is None:
            continue
        if page.header.form is Form.SYSTEM and segment_number(page.key) != conversation:
            return _position(root, next(plan.members(root), None))
        if segment_number(page.key) == conversation and page.parent == plan.home_of(page):
            is_inside = at in page.header.numbers[1:]
            following = next(plan.members(page.parent, after=slot_of(page)), None) if is_inside else page
            return _position(page.parent, following)
    return InsertPosition(root)


def _position(folder: int, following: PageRecord | None) -> InsertPosition:
    return InsertPosition(folder, None if following is None else following.key)
