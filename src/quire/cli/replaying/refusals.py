"""Which providers would refuse a request, found out turn by turn and remembered: requests share most of theirs."""

from collections.abc import Iterator, Sequence

from quire import Message, check_legal
from quire.model.messages import Provider
from quire.providers import format_messages

PROVIDERS: tuple[Provider, ...] = ("openai", "anthropic")


def refusing(messages: Sequence[Message]) -> frozenset[Provider]:
    """The providers that would refuse a request."""
    return frozenset(who for who in PROVIDERS if check_legal(format_messages(messages, who), who))


class Refusals:
    """Judges requests made of the same messages, whose calls have ids of their own.

    A turn that begins with a user message is legal or not by itself: calls and results never reach across one.
    Whoever asks keeps the messages, so that none gets the identity of another.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], frozenset[Provider]] = {}

    def of(self, sent: Sequence[Message]) -> frozenset[Provider]:
        """The providers that would refuse this."""
        found: frozenset[Provider] = frozenset()
        for turn in _turns(sent):
            key = tuple(map(id, turn))
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = refusing(turn)
            found |= known
        return found


def _turns(sent: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The request in pieces: the first with the prompt, each other from a user message on."""
    spoken = next((n for n, message in enumerate(sent) if message.role != "system"), 0)
    starts = [n for n in range(spoken + 1, len(sent)) if sent[n].role == "user"]
    for start, end in zip([0, *starts], [*starts, len(sent)], strict=True):
        yield sent[start:end]
