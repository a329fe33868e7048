"""Bringing back what matters for the last user message: a block in the tail of a view that changes no state."""

from collections.abc import Collection
from functools import cached_property

from quire.core.engine import Engine
from quire.core.records import PageRecord, page_key
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import Form
from quire.search.query import open_to_agents
from quire.search.recall_candidates import likeness_of, memories, words_of
from quire.search.recall_ranking import Chosen, Ranked, Recalled, ranked
from quire.view.part_builder import Maker, block_head
from quire.view.parts import Part, Shown
from quire.view.tail import Standing, Volatile

TITLE = "Recalled from earlier"


class Recollection:
    """What one view brings back, within so many tokens in all."""

    def __init__(self, engine: Engine, maker: Maker, most: int) -> None:
        self._engine = engine
        self._maker = maker
        self._most = most
        self._asked, self._question = _last_question(engine)

    def piece(self, visible: Collection[int]) -> list[Volatile]:
        """Something of the size it would have now, so that room is made for it."""
        part = self.part(self._most, visible)
        said = "".join(str(message.content) for message in part.messages) if part else ""
        return [Volatile("recalled", 0, "", said, standing=Standing.UNIMPORTANT)] if part else []

    def part(self, room: int, visible: Collection[int]) -> Part | None:
        """The block in at most so many tokens, without what is visible already; None if nothing matters or fits."""
        head = block_head(self._maker.key, TITLE)
        left = min(room, self._most) - self._maker.block(head)
        found = self._recalled(left, visible)
        text = head + self._maker.quoting.lines(found.text)
        tokens = self._maker.count(text) + PER_MESSAGE
        while found.pages and tokens > room:  # quoting may have made it longer
            left -= tokens - room
            found = self._recalled(left, visible)
            text = head + self._maker.quoting.lines(found.text)
            tokens = self._maker.count(text) + PER_MESSAGE
        if not found.pages:
            return None
        return Part("recalled", [Message(role="user", content=text)], tokens, self._shown(found.pages))

    def _recalled(self, room: int, visible: Collection[int]) -> Recalled:
        if room <= 0 or not self._question.strip():
            return Recalled()
        return self._ranked.laid_out(room, self._maker.count, visible)

    @cached_property
    def _ranked(self) -> Ranked:
        """What could be brought back, and what it is worth: no fold changes that."""
        state, question = self._engine.state, self._question
        known = memories(state, question, open_to_agents(state))
        return ranked(
            question,
            [memory for memory in known if memory.key != self._asked],  # nothing is as like a question as itself
            words=words_of(state),
            likeness=likeness_of(state, question, self._engine.embedder),
        )

    def _shown(self, pages: Collection[Chosen]) -> list[Shown]:
        state = self._engine.state
        found = ((chosen, state.page(chosen.key)) for chosen in pages)
        return [
            Shown(chosen.key, state.index(chosen.key), "whole", page.header.tokens, chosen.reason)
            for chosen, page in found
            if isinstance(page, PageRecord)
        ]


def _last_question(engine: Engine) -> tuple[int, str]:
    """What the user said last, and the page it stands on."""
    state = engine.state
    conversation = state.conversation()
    stack = [] if conversation is None else [state.members(page_key(conversation, 0), reverse=True)]
    while stack:
        page = next(stack[-1], None)
        if page is None:
            stack.pop()
        elif page.header.folder:
            stack.append(state.members(page.key, reverse=True))
        elif page.header.form is Form.USER:
            return page.key, state.message(page.header.numbers[0]).message.text
    return -1, ""
