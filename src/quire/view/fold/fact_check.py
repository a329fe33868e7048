"""The gate of a summary: which facts the folded text holds, which of them the summary keeps, and which find reaches.

A fact is reachable if what `find` looks through holds the text it stands in; any other is lost unless the summary takes
it. That is asked of whole texts, so it costs one look at each.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from quire.core.plan import Plan
from quire.core.records import PageRecord
from quire.model.messages import Message, iterate_texts
from quire.model.text import unescape_json
from quire.search.page_text import searchable
from quire.view.fold.facts import constraints, facts, stands
from quire.view.parts import Account

_SPEAKER: Final = {"user": 0, "assistant": 3, "system": 3, "tool": 6}
"""How much later facts are taken, by who said them: what the user and the assistant speak of is what matters."""
_MOST_READ = 600_000
"""Facts of a fold unit are listed up to so many characters; of a longer text, those of its beginning and its end."""


class Gate:
    """The facts of some pages that are folded together."""

    def __init__(self) -> None:
        self.ranks: dict[str, int] = {}
        """Every fact, with its rank: the lower, the sooner a summary takes it."""
        self.hidden: list[str] = []
        """Facts that `find` cannot reach."""
        self.unread = 0
        """Characters whose facts were not listed one by one."""
        self._room = _MOST_READ

    def ordered(self) -> list[str]:
        """The facts in the order a summary takes them, but for what the user insisted on."""
        ranks = self.ranks
        return sorted((fact for fact in ranks if ranks[fact] >= 0), key=ranks.__getitem__)

    def constraints(self) -> Iterator[str]:
        """What the user insisted on."""
        return (fact for fact, rank in self.ranks.items() if rank < 0)

    def account(self, shown: str) -> Account:
        """Where the facts are if this is shown in place of the text."""
        out = [fact for fact in self.ranks if not stands(fact, shown)]
        lost = len(set(out).intersection(self.hidden)) if self.hidden else 0
        return Account(len(self.ranks) - len(out), len(out) - lost, lost, self.unread)

    def missing(self, shown: str) -> list[str]:
        """The facts that would be lost: neither shown nor found."""
        return [fact for fact in dict.fromkeys(self.hidden) if not stands(fact, shown)]

    def read_exchange(self, messages: Sequence[Message]) -> None:
        """Take in the facts of one exchange."""
        reach = searchable(messages)
        for message in messages:
            for text in _shown(message):
                self._read(text, reach, _SPEAKER[message.role], insists=message.role == "user")

    def read_text(self, text: str, reach: str) -> None:
        """Take in the facts of a text page; `reach` is what find knows of it."""
        self._read(text, reach, _SPEAKER["assistant"], insists=False)

    def _read(self, text: str, reach: str, speaker: int, *, insists: bool) -> None:
        found = self.ranks if text in reach else {}
        for piece in self._taken(text):
            for fact in constraints(piece) if insists else ():
                found[fact] = -1
            for fact, kind in facts(piece):
                rank = kind + speaker
                if found.get(fact, rank) >= rank:
                    found[fact] = rank
        if found is not self.ranks:  # the rare case: fact by fact
            known = reach.casefold()
            self.hidden += [fact for fact in found if not all(word in known for word in fact.casefold().split())]
            for fact, rank in found.items():
                self.ranks[fact] = min(rank, self.ranks.get(fact, rank))

    def _taken(self, text: str) -> list[str]:
        """The pieces of a text whose facts are listed."""
        room = self._room
        self._room = max(0, room - len(text))
        if len(text) <= room:
            return [text]
        self.unread += len(text) - room
        head = room * 3 // 4
        return [text[:head], text[len(text) - (room - head) :]] if room else []


def gate_of(plan: Plan, pages: Sequence[PageRecord]) -> tuple[Gate, list[Message]]:
    """The gate for pages that are folded together, and the messages that stand on them."""
    gate = Gate()
    spoken: list[Message] = []
    for page in pages:
        if page.header.numbers:
            messages = [plan.message(number).message for number in page.header.numbers]
            gate.read_exchange(messages)
            spoken += messages
        elif page.header.body:
            body = plan.body(page.header.body)
            gate.read_text(body, body)
    return gate, spoken


def _shown(message: Message) -> Iterator[str]:
    """The texts of a message that a model was shown, without the escapes of JSON."""
    calls = {call.arguments for call in message.tool_calls}
    for text in iterate_texts(message):
        yield unescape_json(text) if text in calls or text[:1] in ("{", "[", '"') else text
