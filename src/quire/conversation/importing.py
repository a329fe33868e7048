"""Importing: read a whole history, even a broken one. Nothing is dropped, and everything that was wrong is reported.

Missing ids are filled in. An item that cannot be read is kept as text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from quire.conversation.arrivals import receive, store_marked
from quire.conversation.batches import Finding, ImportReport
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.clock import take_time
from quire.model.messages import Message, Provider
from quire.model.text import SURROGATE
from quire.providers import parse, parse_each

if TYPE_CHECKING:  # imported when it is used
    from quire.core.redaction import Redaction

UNREADABLE = "unreadable"
"""The key in a message's `meta` for the reason why the original could not be read."""

_CALL_ITEMS = ("function_call", "custom_tool_call")
_OUTPUT_ITEMS = ("function_call_output", "custom_tool_call_output")


class Repairer:
    """Repairs the items of a history that a parser would refuse."""

    def __init__(self, redaction: "Redaction | None", provider: Provider | None) -> None:
        self._redaction = redaction
        self._provider = provider
        self.findings: list[Finding] = []
        self.failure: Exception | None = None
        """The error that the iterable of the history raised; None if it raised none."""
        self._waiting: list[str] = []
        self._item = -1

    def repair(self, values: Iterable[object]) -> Iterator[object]:
        """Yield the items, repaired."""
        for item, value in enumerate(self._until_failure(values)):
            self._item = item
            for inner in value if isinstance(value, list | tuple) else (value,):
                readable, messages = self._readable(inner)
                for message in messages:
                    self._follow(message)
                yield readable

    def _until_failure(self, values: Iterable[object]) -> Iterator[object]:
        try:
            yield from values
        except Exception as error:  # foreign code may raise anything; the items before it are imported
            self.failure = error

    def _readable(self, value: object) -> tuple[object, list[Message]]:
        try:
            messages = self._parse(value)
            if not any(_lacks_id(message) for message in messages):
                return value, messages
            why = "an id is missing"
        except InvalidValue as error:
            why = str(error)
        mended = self._repair_item(value)
        try:
            return mended, self._parse(mended)
        except InvalidValue:
            if self._redaction is not None:
                why = "quire cannot read it as a message. The reason is not shown: it may quote a secret."
            kept = _to_text_message(value, why)
            self._report(UNREADABLE, f"Kept as text: {why}")
            return kept, [kept]

    def _parse(self, value: object) -> list[Message]:
        return parse(take_time(value)[0] if isinstance(value, Mapping) else value, self._provider)

    def _follow(self, message: Message) -> None:
        """Record the calls that wait for a result. A later result without a call id gets one of their ids."""
        if message.role in ("assistant", "user"):
            continues = message.role == "assistant" and message.origin == "responses"  # one item per call
            self._waiting = [*(self._waiting if continues else ()), *(call.id for call in message.tool_calls)]
        elif message.role == "tool" and message.tool_call_id in self._waiting:
            self._waiting.remove(message.tool_call_id)

    def _repair_item(self, value: object) -> object:
        """Return a copy with missing ids filled in and without invalid Unicode."""
        if not isinstance(value, Mapping):
            return value
        try:
            copy = _clean(value)
            if _has_surrogate(value):
                self._report("not unicode", "Lone surrogates were replaced by U+FFFD.")
        except RecursionError:  # it contains itself, or is nested too deeply
            return value
        if copy.get("role") == "tool":
            self._fill_call_id(copy, "tool_call_id")
        elif copy.get("type") in _CALL_ITEMS:
            self._fill_ids([copy], key="call_id")
        elif copy.get("type") in _OUTPUT_ITEMS:
            self._fill_call_id(copy, "call_id")
        self._fill_ids(copy.get("tool_calls"))
        content = copy.get("content")
        self._fill_ids(content, kind="tool_use")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._fill_call_id(block, "tool_use_id")
        return copy

    def _fill_ids(self, calls: object, *, key: str = "id", kind: str | None = None) -> None:
        """Give every call of a list, or every block of this kind, an id if it has none."""
        for n, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict) and (kind is None or call.get("type") == kind) and not _has(call, key):
                call[key] = f"call_{self._item}_{n}"
                self._report("missing id", f"A call had no id and got {call[key]!r}.")

    def _fill_call_id(self, result: dict[str, Any], key: str) -> None:
        """Give a result without a call id the id of the first call that waits for one."""
        if not _has(result, key):
            result[key] = self._waiting.pop(0) if self._waiting else f"unknown_{self._item}"
            self._report("missing id", f"A result had no call id and was assigned to {result[key]!r}.")

    def _report(self, kind: str, words: str) -> None:
        self.findings.append(Finding(kind=kind, item=self._item, text=words))


def _lacks_id(message: Message) -> bool:
    return message.tool_call_id == "" or any(not call.id for call in message.tool_calls)


def _has(value: Mapping[str, Any], key: str) -> bool:
    return isinstance(value.get(key), str) and value[key] != ""


def _clean(value: object) -> Any:
    """Return a copy of plain JSON values with lone surrogates replaced; other values are returned unchanged."""
    if isinstance(value, str):
        return SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value


def _has_surrogate(value: object) -> bool:
    """Return True if plain JSON values contain a lone surrogate."""
    if isinstance(value, str):
        return SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(_has_surrogate(key) or _has_surrogate(inner) for key, inner in value.items())
    return isinstance(value, list | tuple) and any(map(_has_surrogate, value))


def _fields(value: object) -> object:
    """Return all fields of a struct, such as a message; the repr of another value."""
    return asdict(value) if isinstance(value, Struct) else repr(value)


def _to_text_message(value: object, why: str) -> Message:
    """Return a message that describes an item that cannot be read."""
    try:
        text = json.dumps(_clean(value), ensure_ascii=False, default=_fields)
    except (TypeError, ValueError, RecursionError):
        text = short_repr(value)
    return Message(role="user", content=_clean(text), meta={UNREADABLE: why[:500]})


CHUNK = 500
"""Messages per commit."""


class Importer:
    """One running import: it plans parts of the history and collects findings.

    A part may be planned several times. Its counts and findings are kept after `confirm_part`.
    """

    def __init__(self, values: Iterable[object], redaction: "Redaction | None", provider: Provider | None) -> None:
        single = isinstance(values, str | bytes | Mapping) or hasattr(values, "model_dump")  # an SDK object is iterable
        if single or not isinstance(values, Iterable):
            raise InvalidValue(f"is {short_repr(values)}; an iterable of messages is needed.", argument="messages")
        self._repairer = Repairer(redaction, provider)
        self._messages = parse_each(self._repairer.repair(values), provider)
        self._total = _Tally()
        self._part = _Tally()

    def parts(self) -> Iterator[list[Message]]:
        """Yield the history in parts, one per commit. An error of the history is raised after the items before it."""
        while part := list(islice(self._messages, CHUNK)):
            yield part
        if self._repairer.failure is not None:
            raise self._repairer.failure

    def plan_part(self, plan: Plan, part: list[Message]) -> None:
        """Plan the arrival of one part."""
        self._part = self._total.copy()
        for message in part:
            number = self._arrive(plan, message)
            self._part.add(number, plan.message(number).page)
            if message.tool_calls:
                self._part.callers[plan.message(number).page] = number
                ids = [call.id for call in message.tool_calls]
                if len(set(ids)) < len(ids):
                    self._find(plan, "duplicate call id", number, f"Calls of one message share an id: {ids}.")

    def confirm_part(self) -> None:
        """Record that the last planned part is committed."""
        self._total = self._part

    def finish(self, reader: Reader) -> ImportReport:
        """Return the report, with the calls that never got a result."""
        self._part = self._total
        for key, number in self._total.callers.items():
            page = reader.page(reader.current_key(key))
            if isinstance(page, PageRecord) and page.header.pending:
                ids = ", ".join(map(repr, page.header.pending))
                self._find(reader, "call without result", number, f"No result came for {ids}.")
        return self.report(reader)

    def report(self, reader: Reader) -> ImportReport:
        """Return the report so far."""
        numbering, kept = reader.numbering(), self._total
        return ImportReport(
            messages=kept.messages,
            pages=kept.pages,
            first=None if kept.first is None else numbering.index(kept.first),
            last=None if kept.last is None else numbering.index(kept.last),
            marked=tuple(index for number in kept.marked if (index := numbering.index(number)) is not None),
            findings=(*self._repairer.findings, *kept.findings),
        )

    def _arrive(self, plan: Plan, message: Message) -> int:
        if UNREADABLE in message.meta:
            return self._store_marked(plan, message)
        if message.role == "tool":
            return self._result(plan, message)
        if not message.has_content:
            number = self._store_marked(plan, message)
            self._find(plan, "empty", number, "A message without content cannot be shown.")
            return number
        number = receive(plan, message)
        if message.role == "system":
            self._part.prompts += 1
            if self._part.prompts > 1:
                self._find(plan, "further system prompt", number, "There is more than one system message.")
        elif not self._part.has_turns:
            self._part.has_turns = True
            if message.role == "assistant":
                self._find(plan, "assistant first", number, "The history begins with the assistant.")
        return number

    def _result(self, plan: Plan, message: Message) -> int:
        arrived = plan.next_message
        try:
            number = receive(plan, message)
        except InvalidOperation as error:
            number = self._store_marked(plan, message)
            unknown = isinstance(error, InvalidValue)
            self._find(plan, "orphaned result" if unknown else "conflicting result", number, str(error))
            return number
        if number < arrived:
            known = plan.numbering().index(number)
            number = self._store_marked(plan, message)
            self._find(plan, "duplicate result", number, f"The same result is message {known} already.")
        return number

    def _store_marked(self, plan: Plan, message: Message) -> int:
        number = store_marked(plan, message)
        self._part.marked.append(number)
        return number

    def _find(self, reader: Reader, kind: str, number: int, text: str) -> None:
        index = reader.numbering().index(number)
        self._part.findings.append(Finding(kind=kind, index=index, text=text))


class _Tally(Struct):
    """The counts and findings of an import so far."""

    messages: int = 0
    pages: int = 0
    first: int | None = None
    last: int | None = None
    marked: list[int] = []
    findings: list[Finding] = []
    callers: dict[int, int] = {}
    prompts: int = 0
    has_turns: bool = False
    newest_page: int = -1

    def copy(self) -> "_Tally":
        return replace(self, marked=[*self.marked], findings=[*self.findings], callers={**self.callers})

    def add(self, number: int, page: int) -> None:
        """Count a message and, if it is a new one, its page."""
        self.messages += 1
        self.pages += page > self.newest_page
        self.newest_page = max(page, self.newest_page)
        self.first = number if self.first is None else self.first
        self.last = number
