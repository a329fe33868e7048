"""The check of a summary: which facts the folded text has, which of them the summary keeps, and which `find` reaches.

A fact is reachable if the text that `find` searches contains the text of the fact. Any other fact is lost unless the
summary has it. The check compares whole texts first, so it reads each text once.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from quire.core.plan import Plan
from quire.core.records import PageRecord
from quire.model.messages import Message, iterate_texts
from quire.model.text import unescape_json
from quire.search.page_text import searchable_text
from quire.view.fold.facts import FactKind, extract_constraints, extract_facts, is_distinctive, occurs_in
from quire.view.parts import FactAccount

_SPEAKER_RANK: Final = {"user": 0, "assistant": 3, "system": 3, "tool": 6}
"""Added to the rank of a fact by its speaker: facts of the user and the assistant matter most."""
_MOST_MENTIONS = 4
"""The most that further mentions of a fact improve its rank."""
_FIELD = re.compile(r"[a-z]+(?:_[a-z]+)+")
_FIELD_RANK = FactKind.NAME + _SPEAKER_RANK["assistant"]
"""A word such as `user_id` in a call or a result is the name of a field. It says nothing about this one."""
_CALL_ID = re.compile(r"(?:call|toolu|tooluse|fc|chatcmpl-tool)[_-][A-Za-z0-9_-]+")
_MAX_CHARACTERS = 600_000
"""The characters of a fold unit whose facts are listed. Of a longer text, the beginning and the end are read."""


class FactCheck:
    """The facts of pages that are folded together. `is_ignored` returns whether a word is a name that quire gave."""

    def __init__(self, is_ignored: Callable[[str], bool] = lambda fact: False) -> None:
        self._is_ignored = is_ignored
        self._mentions: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        """The rank of every fact. A summary takes facts with a low rank first."""
        self.unreachable: list[str] = []
        """The facts that `find` cannot reach."""
        self.unread = 0
        """The number of characters whose facts were not listed."""
        self._room = _MAX_CHARACTERS

    def ranked_facts(self) -> list[str]:
        """Return the facts without the user's constraints, in the order in which a summary takes them."""
        ranks, mentions = self.ranks, self._mentions
        facts = (fact for fact, rank in ranks.items() if rank >= 0 and is_distinctive(fact))
        facts = (fact for fact in facts if ranks[fact] < _FIELD_RANK or not _FIELD.fullmatch(fact))
        return sorted(facts, key=lambda fact: ranks[fact] - min(_MOST_MENTIONS, mentions.get(fact, 0)))

    def constraints(self) -> Iterator[str]:
        """Yield the sentences in which the user insists on something."""
        return (fact for fact, rank in self.ranks.items() if rank < 0)

    def account(self, shown: str) -> FactAccount:
        """Return the account of the facts if `shown` replaces the text."""
        out = [fact for fact in self.ranks if not occurs_in(fact, shown)]
        lost = len(set(out).intersection(self.unreachable)) if self.unreachable else 0
        return FactAccount(len(self.ranks) - len(out), len(out) - lost, lost, self.unread)

    def missing(self, shown: str) -> list[str]:
        """Return the facts that would be lost: neither in `shown` nor reachable."""
        return [fact for fact in dict.fromkeys(self.unreachable) if not occurs_in(fact, shown)]

    def read_exchange(self, messages: Sequence[Message]) -> None:
        """Add the facts of one exchange."""
        reach = searchable_text(messages)
        for message in messages:
            for text in _message_texts(message):
                self._read(text, reach, _SPEAKER_RANK[message.role], has_constraints=message.role == "user")

    def read_text(self, text: str, reach: str) -> None:
        """Add the facts of a text page; `reach` is the text that `find` searches."""
        self._read(text, reach, _SPEAKER_RANK["assistant"], has_constraints=False)

    def _read(self, text: str, reach: str, speaker: int, *, has_constraints: bool) -> None:
        found = self.ranks if text in reach else {}
        for piece in self._split(text):
            for fact in extract_constraints(piece) if has_constraints else ():
                found[fact] = -1
            for fact, kind in extract_facts(piece):
                rank = kind + speaker
                if fact in self.ranks:
                    self._mentions[fact] = self._mentions.get(fact, 0) + 1
                if found.get(fact, rank) >= rank and not self._is_ignored(fact):
                    found[fact] = rank
        if found is not self.ranks:  # rare: compare fact by fact
            known = reach.casefold()
            self.unreachable += [fact for fact in found if not all(word in known for word in fact.casefold().split())]
            for fact, rank in found.items():
                self.ranks[fact] = min(rank, self.ranks.get(fact, rank))

    def _split(self, text: str) -> list[str]:
        """Return the pieces of a text whose facts are listed."""
        room = self._room
        self._room = max(0, room - len(text))
        if len(text) <= room:
            return [text]
        self.unread += len(text) - room
        head = room * 3 // 4
        return [text[:head], text[len(text) - (room - head) :]] if room else []


def check_facts(plan: Plan, pages: Sequence[PageRecord]) -> tuple[FactCheck, list[Message]]:
    """Return the check for pages that are folded together, and their messages."""
    check = FactCheck(partial(_is_quire_name, plan))
    all_messages: list[Message] = []
    for page in pages:
        if page.header.numbers:
            messages = [plan.message(number).message for number in page.header.numbers]
            check.read_exchange(messages)
            all_messages += messages
        elif page.header.body:
            body = plan.body(page.header.body)
            check.read_text(body, body)
    return check, all_messages


def _is_quire_name(plan: Plan, word: str) -> bool:
    """Return whether a word is the index of a page or the id of a call: the text has it from quire or a provider."""
    return plan.key_of(word) is not None or _CALL_ID.fullmatch(word) is not None


def _message_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message that a model has seen, without the escapes of JSON."""
    calls = {call.arguments for call in message.tool_calls}
    for text in iterate_texts(message):
        yield unescape_json(text) if text in calls or text[:1] in ("{", "[", '"') else text
