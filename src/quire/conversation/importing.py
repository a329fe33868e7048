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
from quire.model.pages import Mark
from quire.model.text import SURROGATE
from quire.providers import parse, parse_each

if TYPE_CHECKING:  # imported when it is used
    from quire.core.redaction import Redaction

UNREADABLE = "unreadable"
"""The key in a message's `meta` for the reason why the original could not be read."""
CHUNK = 500
"""Messages per commit."""

_CALLS = {"function_call": "call_id", "custom_tool_call": "call_id", "tool_use": "id"}
_RESULTS = {"function_call_output": "call_id", "custom_tool_call_output": "call_id", "tool_result": "tool_use_id"}
"""The fields for the id of a call, by the type of an item or a block."""


class Repairer:
    """Repairs the items of a history that a parser would refuse."""

    def __init__(self, redaction: "Redaction | None", provider: Provider | None) -> None:
        self._redaction = redaction
        self._provider = provider
        self.findings: list[Finding] = []
        self.failure: Exception | None = None
        """The error that the iterable of the history raised; None if it raised none."""
        self._waiting: list[str] = []  # the ids of the calls without a result
        self._item = -1

    def repair(self, values: Iterable[object]) -> Iterator[object]:
        """Yield the items, repaired."""
        for value in self._until_failure(values):
            self._item += 1
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
        """Return the item as it is if it can be read, else a repaired copy, else a message with its text."""
        try:
            messages = self._parse(value)
            if all(message.tool_call_id != "" and all(call.id for call in message.tool_calls) for message in messages):
                return value, messages
            why = "an id is missing"
        except InvalidValue as error:
            why = str(error)
        mended = self._mend(value)
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

    def _mend(self, value: object) -> object:
        """Return a copy with missing ids filled in and without invalid Unicode."""
        if not isinstance(value, Mapping):
            return value
        try:
            replaced: list[str] = []
            copy = _clean(value, replaced)
        except RecursionError:  # it contains itself, or is nested too deeply
            return value
        if replaced:
            self._report("not unicode", "Lone surrogates were replaced by U+FFFD.")
        self._fill_ids(copy)
        return copy

    def _fill_ids(self, item: dict[str, Any]) -> None:
        """Give every call without an id an id, and every result without one the id of the first call that waits."""
        parts = [(part, str(part.get("type"))) for part in (item, *_dicts(item.get("content")))]
        calls = [(part, _CALLS[kind]) for part, kind in parts if kind in _CALLS]
        calls += [(call, "id") for call in _dicts(item.get("tool_calls"))]
        results = [(part, _RESULTS[kind]) for part, kind in parts if kind in _RESULTS]
        if item.get("role") == "tool":
            results.append((item, "tool_call_id"))
        for n, (call, key) in enumerate(calls):
            if not _has(call, key):
                call[key] = f"call_{self._item}_{n}"
                self._report("missing id", f"A call had no id and got {call[key]!r}.")
        for result, key in results:
            if not _has(result, key):
                result[key] = self._waiting.pop(0) if self._waiting else f"unknown_{self._item}"
                self._report("missing id", f"A result had no call id and was assigned to {result[key]!r}.")

    def _report(self, kind: str, words: str) -> None:
        self.findings.append(Finding(kind=kind, item=self._item, text=words))


def _dicts(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _has(value: Mapping[str, Any], key: str) -> bool:
    return isinstance(value.get(key), str) and value[key] != ""


def _clean(value: object, replaced: list[str]) -> Any:
    """Return a copy of plain JSON values without lone surrogates, which are added to `replaced`."""
    if isinstance(value, str):
        replaced += SURROGATE.findall(value)
        return SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key, replaced): _clean(inner, replaced) for key, inner in value.items()}
    return [_clean(inner, replaced) for inner in value] if isinstance(value, list | tuple) else value


def _to_text_message(value: object, why: str) -> Message:
    """Return a message that describes an item that cannot be read."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_fields)
    except (TypeError, ValueError, RecursionError):
        text = short_repr(value)
    return Message(role="user", content=SURROGATE.sub("\ufffd", text), meta={UNREADABLE: why[:500]})


def _fields(value: object) -> object:
    """Return all fields of a struct, such as a message; the repr of another value."""
    return asdict(value) if isinstance(value, Struct) else repr(value)


Examined = tuple[Message, list[Finding]]
"""A message of the history, and what is wrong with it wherever it is stored."""


class Importer:
    """One running import: it plans parts of the history and collects findings.

    A part may be planned several times. Its counts and findings are kept after `confirm_part`.
    """

    def __init__(self, values: Iterable[object], redaction: "Redaction | None", provider: Provider | None) -> None:
        single = isinstance(values, str | bytes | Mapping) or hasattr(values, "model_dump")  # an SDK object is iterable
        if single or not isinstance(values, Iterable):
            raise InvalidValue(f"is {short_repr(values)}; an iterable of messages is needed.", argument="messages")
        self._repairer = Repairer(redaction, provider)
        self._messages = map(self._examine, parse_each(self._repairer.repair(values), provider))
        self._roles: set[str] = set()  # of the messages so far that can be shown
        self._total = ImportReport()
        self._part: tuple[ImportReport, dict[int, int], int] = self._total, {}, -1
        self._callers: dict[int, int] = {}  # the newest message with calls of each exchange, by its page
        self._newest_page = -1

    def parts(self) -> Iterator[list[Examined]]:
        """Yield the history in parts, one per commit. An error of the history is raised after the items before it."""
        while part := list(islice(self._messages, CHUNK)):
            yield part
        if self._repairer.failure is not None:
            raise self._repairer.failure

    def plan_part(self, plan: Plan, part: list[Examined]) -> None:
        """Plan the arrival of one part."""
        pages: dict[int, int] = {}
        callers: dict[int, int] = {}
        findings: list[Finding] = []
        for message, own in part:
            number, found = _store(plan, message)
            findings += [replace(finding, index=plan.message_index(number)) for finding in (*found, *own)]
            page = pages[number] = plan.message(number).page
            if message.tool_calls:
                callers[page] = number
        indices = [plan.message_index(number) for number in pages]
        report = ImportReport(
            messages=len(part),
            pages=len({page for page in pages.values() if page > self._newest_page}),
            first=indices[0],
            last=indices[-1],
            marked=tuple(plan.message_index(n) for n in pages if plan.mark_of(n) is Mark.UNSHOWABLE),
            findings=tuple(findings),
        )
        self._part = report, callers, max(pages.values())

    def confirm_part(self) -> None:
        """Record that the last planned part is committed."""
        total, (part, callers, self._newest_page) = self._total, self._part
        self._callers |= callers
        self._total = ImportReport(
            messages=total.messages + part.messages,
            pages=total.pages + part.pages,
            first=part.first if total.first is None else total.first,
            last=part.last,
            marked=total.marked + part.marked,
            findings=total.findings + part.findings,
        )

    def report(self, _: Reader) -> ImportReport:
        """Return the report so far."""
        return replace(self._total, findings=(*self._repairer.findings, *self._total.findings))

    def finish(self, reader: Reader) -> ImportReport:
        """Return the report, with the calls that never got a result."""
        report = self.report(reader)
        findings, numbering = [*report.findings], reader.numbering()
        for key, number in self._callers.items():
            page = reader.page(reader.current_key(key))
            if isinstance(page, PageRecord) and page.header.pending:
                text = f"No result came for {', '.join(map(repr, page.header.pending))}."
                findings.append(Finding(kind="call without result", index=numbering.index(number), text=text))
        return replace(report, findings=tuple(findings))

    def _examine(self, message: Message) -> Examined:
        """Return a message with the findings that do not depend on the context."""
        findings: list[Finding] = []
        if UNREADABLE not in message.meta and message.role != "tool" and message.has_content:
            if message.role == "system" and "system" in self._roles:
                text = "There is more than one system message."
                findings.append(Finding(kind="further system prompt", text=text))
            elif message.role == "assistant" and self._roles <= {"system"}:
                findings.append(Finding(kind="assistant first", text="The history begins with the assistant."))
            self._roles.add(message.role)
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) < len(ids):
            findings.append(Finding(kind="duplicate call id", text=f"Calls of one message share an id: {ids}."))
        return message, findings


def _store(plan: Plan, message: Message) -> tuple[int, list[Finding]]:
    """Plan the arrival of a message, with a mark if it cannot be shown; return its number, and why it has a mark."""
    arrived = plan.next_message
    if UNREADABLE in message.meta:
        return store_marked(plan, message), []
    if message.role != "tool":
        if message.has_content:
            return receive(plan, message), []
        return store_marked(plan, message), [Finding(kind="empty", text="A message without content cannot be shown.")]
    try:
        number = receive(plan, message)
    except InvalidOperation as error:
        kind = "orphaned result" if isinstance(error, InvalidValue) else "conflicting result"
        return store_marked(plan, message), [Finding(kind=kind, text=str(error))]
    if number >= arrived:
        return number, []
    text = f"The same result is message {plan.message_index(number)} already."
    return store_marked(plan, message), [Finding(kind="duplicate result", text=text)]
