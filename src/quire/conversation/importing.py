"""Taking in a whole history, also a broken one: nothing is dropped, and all that was wrong is reported."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from quire.conversation.arrivals import keep_aside, receive
from quire.conversation.healing import UNREADABLE, Healer
from quire.conversation.results import Finding, ImportReport
from quire.errors import InvalidOperation, InvalidValue, shown
from quire.messages import Message
from quire.plan import Plan
from quire.providers import parse_each
from quire.reader import Reader
from quire.records import PageRecord

CHUNK = 500
"""Messages a commit."""


class Importer:
    """One import under way: parts of the history in, findings out.

    A part is planned, then either `keep` or, if its commit failed, forgotten with the importer.
    """

    def __init__(self, values: Iterable[object]) -> None:
        single = isinstance(values, str | bytes | Mapping) or hasattr(values, "model_dump")  # an SDK object is iterable
        if single or not isinstance(values, Iterable):
            raise InvalidValue(f"import_messages takes an iterable of messages, not {shown(values)}.")
        self._healer = Healer()
        self._messages = parse_each(self._healer.healed(values))
        self._numbers: list[int] = []
        self._marked: list[int] = []
        self._findings: list[Finding] = []
        self._callers: dict[int, int] = {}
        self._pages: set[int] = set()
        self._prompts = 0
        self._spoken = False

    def parts(self) -> Iterator[list[Message]]:
        """The history in parts, each for one commit. If it fails, that is raised after what came before."""
        while part := list(islice(self._messages, CHUNK)):
            yield part
        if self._healer.failure is not None:
            raise self._healer.failure

    def take(self, plan: Plan, part: list[Message]) -> None:
        """Plan the arrival of one part."""
        for message in part:
            number = self._arrive(plan, message)
            self._numbers.append(number)
            page = plan.message(number).page
            self._pages.add(page)
            if message.tool_calls:
                self._callers[page] = number
                ids = [call.id for call in message.tool_calls]
                if len(set(ids)) < len(ids):
                    self._find(plan, "duplicate call id", number, f"Calls of one message share an id: {ids}.")

    def finish(self, reader: Reader) -> ImportReport:
        """What was taken in, with the calls that never got a result."""
        for key, number in self._callers.items():
            page = reader.page(reader.moved(key))
            if isinstance(page, PageRecord) and page.header.pending:
                ids = ", ".join(map(repr, page.header.pending))
                self._find(reader, "call without result", number, f"No result came for {ids}.")
        return self.report(reader)

    def report(self, reader: Reader) -> ImportReport:
        """What was taken in so far."""
        numbering = reader.numbering()
        healed = (Finding(kind=kind, item=item, index=None, text=text) for item, kind, text in self._healer.told)
        return ImportReport(
            messages=len(self._numbers),
            pages=len(self._pages),
            first=numbering.index(self._numbers[0]) if self._numbers else None,
            last=numbering.index(self._numbers[-1]) if self._numbers else None,
            marked=tuple(index for number in self._marked if (index := numbering.index(number)) is not None),
            findings=(*healed, *self._findings),
        )

    def _arrive(self, plan: Plan, message: Message) -> int:
        if UNREADABLE in message.meta:
            return self._aside(plan, message)
        if message.role == "tool":
            return self._result(plan, message)
        if not message.says_something:
            number = self._aside(plan, message)
            self._find(plan, "empty", number, "A message without content cannot be shown.")
            return number
        number = receive(plan, message)
        if message.role == "system":
            self._prompts += 1
            if self._prompts > 1:
                self._find(plan, "further system prompt", number, "There is more than one system message.")
        elif not self._spoken:
            self._spoken = True
            if message.role == "assistant":
                self._find(plan, "assistant first", number, "The history begins with the assistant.")
        return number

    def _result(self, plan: Plan, message: Message) -> int:
        arrived = plan.next_message
        try:
            number = receive(plan, message)
        except InvalidOperation as error:
            number = self._aside(plan, message)
            unknown = isinstance(error, InvalidValue)
            self._find(plan, "orphaned result" if unknown else "conflicting result", number, str(error))
            return number
        if number < arrived:
            known = plan.numbering().index(number)
            number = self._aside(plan, message)
            self._find(plan, "duplicate result", number, f"The same result is message {known} already.")
        return number

    def _aside(self, plan: Plan, message: Message) -> int:
        number = keep_aside(plan, message)
        self._marked.append(number)
        return number

    def _find(self, reader: Reader, kind: str, number: int, text: str) -> None:
        index = reader.numbering().index(number)
        self._findings.append(Finding(kind=kind, item=None, index=index, text=text))
