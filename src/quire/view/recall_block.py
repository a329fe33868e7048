"""The block in the tail of a view with pages that matter for the last user message. It changes no state."""

from collections.abc import Collection
from functools import cached_property

from quire.core.engine import Engine
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import Form
from quire.search.query import agent_scope
from quire.search.recall import (
    ChosenMemory,
    RankedMemories,
    RecallText,
    find_memories,
    likeness_functions,
    rank_memories,
    word_cache_of,
)
from quire.view.draw import PartBuilder, block_head
from quire.view.parts import RecalledPage, ViewPart
from quire.view.tail import Paths, Priority, TailPiece, recalled_page

TITLE = "Recalled from earlier"


class RecallBlock:
    """The recalled pages of one view, in at most `share` tokens.

    The blocks of earlier views stay until the next fold. So a block has only pages that are not visible, and the
    visible pages among the best reduce its share. If the block is `selective`, the scores decide its size. A
    message with less clarity than `floor` gets a small block (see `memory_scores`).
    """

    def __init__(self, engine: Engine, builder: PartBuilder, share: int, *, selective: bool, floor: float) -> None:
        self._engine = engine
        self._builder = builder
        self._share = share
        self._selective = selective
        self._floor = floor
        self._question_page, self._question = _last_question(engine)
        self._fitted: tuple[int, Collection[int], tuple[RecallText, str, int]] | None = None

    def reserve(self, visible: Collection[int]) -> list[TailPiece]:
        """Return a piece of the size that the block would have now, so that a fold makes room for it."""
        recalled, text, _ = self._fit(self._share, visible)
        return [TailPiece("recalled", 0, "", text, priority=Priority.UNIMPORTANT)] if recalled.pages else []

    def build(self, room: int, visible: Collection[int]) -> ViewPart | None:
        """Return the block in at most `room` tokens, without `visible` pages; None if no page matters or fits."""
        recalled, text, tokens = self._fit(room, visible)
        if not recalled.pages:
            return None
        return ViewPart("recalled", [Message(role="user", content=text)], tokens, self._shown_pages(recalled.pages))

    def _fit(self, room: int, visible: Collection[int]) -> tuple[RecallText, str, int]:
        """Return the chosen pages, the text of the block in at most `room` tokens, and its tokens."""
        room, visible = min(room, self._share), frozenset(visible)
        if self._fitted and self._fitted[:2] == (room, visible):
            return self._fitted[2]
        head = block_head(self._builder.key, TITLE)
        left = room - self._builder.message_tokens(head)
        recalled, text, tokens = self._lay_out(head, left, visible)
        while recalled.pages and tokens > room:  # escaping may have made it longer
            left -= tokens - room
            recalled, text, tokens = self._lay_out(head, left, visible)
        self._fitted = room, visible, (recalled, text, tokens)
        return recalled, text, tokens

    def _lay_out(self, head: str, room: int, visible: Collection[int]) -> tuple[RecallText, str, int]:
        recalled = RecallText()
        if room > 0 and self._question.strip():
            recalled = self._memories.lay_out(
                room,
                self._builder.count,
                visible,
                share=self._share,
                selective=self._selective,
                floor=self._floor,
            )
        text = head + self._builder.escaping.escape_key(recalled.text)
        return recalled, text, self._builder.count(text) + PER_MESSAGE

    @cached_property
    def _memories(self) -> RankedMemories:
        """The pages that could be recalled, ranked. A fold does not change them."""
        state, question = self._engine.state, self._question
        memories = find_memories(state, question, agent_scope(state), self._engine.embedder)
        return rank_memories(
            question,
            [memory for memory in memories if memory.key != self._question_page],  # it would match itself best
            words=word_cache_of(state),
            likeness=likeness_functions(state, question, memories, self._engine.embedder),
            room=self._share,
        )

    def _shown_pages(self, pages: Collection[ChosenMemory]) -> list[RecalledPage]:
        state = self._engine.state
        found: list[RecalledPage] = []
        paths: Paths = {}
        for one in pages:
            found += recalled_page(state, one.key, paths, one.reason, round(one.score, 3))
        return found


def _last_question(engine: Engine) -> tuple[int, str]:
    """Return the page of the last user message, and its text."""
    state = engine.state
    for page in state.newest_leaves():
        if page.header.form is Form.USER:
            return page.key, state.message(page.header.numbers[0]).message.text
    return -1, ""
