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

    A part is planned, as often as that takes, and kept once it is committed.
    """

    def __init__(self, values: Iterable[object]) -> None:
        single = isinstance(values, str | bytes | Mapping) or hasattr(values, "model_dump")  # an SDK object is iterable
        if single or not isinstance(values, Iterable):
            raise InvalidValue(f"import_messages takes an iterable of messages, not {shown(values)}.")
        self._healer = Healer()
        self._messages = parse_each(self._healer.healed(values))
        self._kept = _Taken()
        self._taken = _Taken()

    def parts(self) -> Iterator[list[Message]]:
        """The history in parts, each for one commit. If it fails, that is raised after what came before."""
        while part := list(islice(self._messages, CHUNK)):
            yield part
        if self._healer.failure is not None:
            raise self._healer.failure

    def take(self, plan: Plan, part: list[Message]) -> None:
        """Plan the arrival of one part."""
        self._taken = self._kept.next_part()
        for message in part:
            number = self._arrive(plan, message)
            self._taken.add(number, plan.message(number).page)
            if message.tool_calls:
                self._taken.callers[plan.message(number).page] = number
                ids = [call.id for call in message.tool_calls]
                if len(set(ids)) < len(ids):
                    self._find(plan, "duplicate call id", number, f"Calls of one message share an id: {ids}.")

    def keep(self) -> None:
        """Note that the part that was planned last is committed."""
        self._kept.merge(self._taken)

    def finish(self, reader: Reader) -> ImportReport:
        """What was taken in, with the calls that never got a result."""
        self._taken = self._kept
        for key, number in self._kept.callers.items():
            page = reader.page(reader.moved(key))
            if isinstance(page, PageRecord) and page.header.pending:
                ids = ", ".join(map(repr, page.header.pending))
                self._find(reader, "call without result", number, f"No result came for {ids}.")
        return self.report(reader)

    def report(self, reader: Reader) -> ImportReport:
        """What was taken in so far."""
        numbering, kept = reader.numbering(), self._kept
        healed = (Finding(kind=kind, item=item, index=None, text=text) for item, kind, text in self._healer.told)
        return ImportReport(
            messages=kept.messages,
            pages=kept.pages,
            first=None if kept.first is None else numbering.index(kept.first),
            last=None if kept.last is None else numbering.index(kept.last),
            marked=tuple(index for number in kept.marked if (index := numbering.index(number)) is not None),
            findings=(*healed, *kept.findings),
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
            self._taken.prompts += 1
            if self._taken.prompts > 1:
                self._find(plan, "further system prompt", number, "There is more than one system message.")
        elif not self._taken.spoken:
            self._taken.spoken = True
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
        self._taken.marked.append(number)
        return number

    def _find(self, reader: Reader, kind: str, number: int, text: str) -> None:
        index = reader.numbering().index(number)
        self._taken.findings.append(Finding(kind=kind, item=None, index=index, text=text))


class _Taken:
    """What was taken in, of the whole history or of one part."""

    def __init__(self) -> None:
        self.messages = 0
        self.pages = 0
        self.first: int | None = None
        self.last: int | None = None
        self.marked: list[int] = []
        self.findings: list[Finding] = []
        self.callers: dict[int, int] = {}
        self.prompts = 0
        self.spoken = False
        self.newest_page = -1

    def next_part(self) -> "_Taken":
        """An empty one that goes on from here."""
        part = _Taken()
        part.prompts, part.spoken, part.newest_page = self.prompts, self.spoken, self.newest_page
        return part

    def add(self, number: int, page: int) -> None:
        """Count a message and, if it is another one, its page."""
        self.messages += 1
        self.pages += page > self.newest_page
        self.newest_page = max(page, self.newest_page)
        self.first = number if self.first is None else self.first
        self.last = number

    def merge(self, part: "_Taken") -> None:
        """Add what a part took in."""
        self.messages += part.messages
        self.pages += part.pages
        self.first = part.first if self.first is None else self.first
        self.last = self.last if part.last is None else part.last
        self.marked += part.marked
        self.findings += part.findings
        self.callers |= part.callers
        self.prompts, self.spoken, self.newest_page = part.prompts, part.spoken, part.newest_page
