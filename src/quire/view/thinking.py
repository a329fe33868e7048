"""Which thinking a view sends back.

Some models bind thinking to everything that was sent before it. So a reply is stored with a digest of that, and with a
link to the thinking that was sent last (`SentView`). A view sends back the thinking of the newest reply with a digest
that still matches, and from there the thinking along the links, as long as the digests match. Everything that changes
the view before a reply, such as an undo, an edit or other tools, makes its digest differ, so its thinking is left out.
A fold ends all thinking before it.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from quire.core.records import SentView
from quire.model.messages import Message
from quire.view.draw import Node
from quire.view.parts import Reply, Request, ViewPart
from quire.view.tail import to_tail_text


def extend_digest(digest: bytes, parts: Iterable[ViewPart]) -> bytes:
    """Return the digest of everything before, which has `digest`, and of these parts."""
    for part in parts:
        if part.kind != "opening":  # it depends on the part after it
            digest = blake2b(digest + part.digest(), digest_size=16).digest()
    return digest


def sent_view(request: Request, parts: Sequence[ViewPart], tail: Sequence[ViewPart], reply: Message) -> SentView:
    """Return what a reply is stored with: the `tail` of the view it answers, and the digest of the `parts` before."""
    texts = tuple(to_tail_text(part) for part in tail if part.kind != "opening")
    if not reply.has_thinking:
        return SentView(texts)
    digest = extend_digest(b"", parts) if request.digest is None else request.digest
    return SentView(texts, extend_digest(digest, tail), request.frame, request.newest)


class ThinkingChain:
    """Chooses which replies since the last fold are shown with their thinking.

    `base` are the parts before the conversation, `nodes` the elements of the conversation, and `folded` is the entry of
    the last fold. The chain changes `nodes`. Elements may be appended, and replaced with `replace`.
    """

    def __init__(self, base: Sequence[ViewPart], nodes: list[Node], folded: int) -> None:
        self._nodes = nodes
        self._folded = folded
        self._digests = [extend_digest(b"", base)]
        self._replies: dict[int, int] = {}
        """The numbers of the replies with thinking, by their places."""
        self._seen = 0
        self._kept: set[int] = set()
        self._frame: bytes | None = None
        self.newest = -1
        """The number of the newest message with its thinking in the view; -1 if there is none."""

    def digest(self, place: int | None = None) -> bytes:
        """Return the digest of everything before an element, or of the whole view without its tail."""
        end = len(self._nodes) if place is None else place
        while len(self._digests) <= end:
            self._digests.append(extend_digest(self._digests[-1], [self._nodes[len(self._digests) - 1].part]))
        return self._digests[end]

    def replace(self, place: int) -> bool:
        """Take note of a changed element. Return False if everything must be chosen again."""
        del self._digests[place + 1 :]
        reply = self._reply(place)
        if (None if reply is None else reply.number) != self._replies.get(place):  # a second reply joined the first
            return False
        if place in self._kept:
            self._show(place, kept=True)
        return place == len(self._nodes) - 1

    def choose(self, frame: bytes) -> int:
        """Show the thinking that matches this view and the `frame`; return by how many tokens the view grows."""
        places = range(self._seen, len(self._nodes))
        fresh = {place: reply.number for place in places if (reply := self._reply(place)) is not None}
        self._replies |= fresh
        self._seen = len(self._nodes)
        if frame == self._frame and not fresh:
            return 0
        if frame == self._frame and len(fresh) == 1 and self._continues(next(iter(fresh))):
            return self._keep([*self._kept, *fresh], fresh)
        self._frame = frame
        kept: list[int] = []
        wanted: int | None = None
        for place in reversed(self._replies):
            reply = self._reply(place)
            if reply is None or (wanted is not None and reply.number > wanted):
                continue
            if self._matches(place, reply) and wanted in (None, reply.number):
                kept.append(place)
                wanted = reply.sent.previous
            elif wanted is not None:
                break
        return self._keep(kept, self._replies)

    def _continues(self, place: int) -> bool:
        """Return whether a reply was sent after the thinking that is shown, and nothing changed since."""
        reply = self._reply(place)
        return reply is not None and reply.sent.previous == self.newest and self._matches(place, reply)

    def _matches(self, place: int, reply: Reply) -> bool:
        return reply.sent.frame == self._frame and reply.sent.digest == self.digest(place)

    def _keep(self, kept: Iterable[int], places: Iterable[int]) -> int:
        self._kept = set(kept)
        newest = max(self._kept, default=None)
        reply = None if newest is None else self._reply(newest)
        self.newest = -1 if reply is None else reply.number
        return sum(self._show(place, kept=place in self._kept) for place in places)

    def _show(self, place: int, *, kept: bool) -> int:
        """Show a reply with or without its thinking; return by how many tokens the view grows."""
        node = self._nodes[place]
        reply = self._reply(place)
        part = reply.whole if reply is not None and kept and reply.whole is not None else node.part.bare or node.part
        self._nodes[place] = replace(node, part=part)
        return part.tokens - node.part.tokens

    def _reply(self, place: int) -> Reply | None:
        """Return the reply of an element if its thinking may be sent back."""
        part = self._nodes[place].part
        reply = (part.bare or part).reply
        return reply if reply is not None and reply.whole is not None and reply.seq > self._folded else None
