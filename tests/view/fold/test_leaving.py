"""Removed messages take their words out of summaries, and the last user message before them is open again."""

from collections.abc import Callable

import pytest

import quire
from quire import Context

SECRET = "HUNTER-77123"


def folded_talk() -> Context:
    """Return a long conversation with an early, folded message that has text to remove."""
    ctx = quire.open("memory:", budget=1_000)
    ctx.system("Prompt.")
    for turn in range(40):
        words = f"The code is {SECRET}, 别忘了。" if turn == 7 else "word " * 18
        ctx.user(f"Question {turn}: {words}")
        ctx.assistant(f"Answer {turn} " + "word " * 12)
        ctx.render()
    assert SECRET in str(ctx.render().openai())
    return ctx


def number_of(ctx: Context) -> int:
    return next(message.index for message in ctx.messages() if SECRET in message.text)


WAYS: dict[str, Callable[[Context], object]] = {
    "delete": lambda ctx: ctx.conversation.delete(number_of(ctx)),
    "replace": lambda ctx: ctx.conversation.replace(
        number_of(ctx), {"role": "user", "content": "Question 7: never mind"}
    ),
    "remove": lambda ctx: ctx.as_agent(remove_user_messages=True).remove_page(
        str(ctx.conversation.page_of(number_of(ctx)))
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_taken_out_stands_in_no_line(way: str) -> None:
    ctx = folded_talk()
    WAYS[way](ctx)
    if way == "remove":  # an agent's change takes effect at the next fold
        ctx.user("word " * 700)
    assert SECRET not in str(ctx.render().openai())
    for turn in range(20):
        ctx.user(f"More {turn} " + "word " * 18)
        assert SECRET not in str(ctx.render().openai())
    pages = ctx.pages.list_pages("usr")
    chapters = [page for page in pages if isinstance(page, quire.ContentsPage)]
    assert not any(SECRET in page.name + page.description for page in chapters)
    assert ctx.check() == []


def test_undo_brings_the_words_back() -> None:
    ctx = folded_talk()
    before = ctx.render().openai()
    ctx.conversation.delete(number_of(ctx))
    ctx.undo(ctx.seq)
    assert ctx.render().openai() == before


@pytest.mark.parametrize("way", ["temporary", "batch"])
def test_after_a_block_the_last_words_of_the_user_are_open_again(way: str) -> None:
    ctx = quire.open("memory:", budget=800)
    ctx.system("Prompt.")
    for turn in range(6):
        ctx.user(f"Question {turn}: " + "word " * 20)
        ctx.assistant(f"Answer {turn}")

    def aside() -> None:
        for turn in range(20):
            ctx.user(f"Aside {turn}: {SECRET} " + "word " * 30)
            ctx.render()

    if way == "temporary":
        with ctx.temporary():
            aside()
    else:
        ctx.conversation.batch_start()
        aside()
        ctx.conversation.batch_end(0)
    view = ctx.render()
    assert SECRET not in str(view.openai())
    assert [message.content for message in view.messages][-2:] == ["Question 5: " + "word " * 20, "Answer 5"]
    assert ctx.render().openai() == view.openai()
    assert [message.text[:8] for message in ctx.messages()][1:4] == ["Question", "Answer 0", "Question"]
    assert ctx.check() == []


def test_the_last_question_is_shown_again_though_a_fold_would_save_little() -> None:
    config = quire.CompressionConfig(threshold=300, target_tokens=150)
    ctx = quire.open("memory:", budget=700, compression=config, counter=quire.EstimateCounter())
    question = "The first question. " + "word " * 200
    ctx.user(question)
    ctx.assistant("An answer.")
    with ctx.temporary():
        ctx.user("A second question. " + "word " * 60)
        ctx.assistant("Another answer.")
        ctx.user("A third question. " + "word " * 60)
        assert question not in [message.text for message in ctx.render().messages]
    assert question in [message.text for message in ctx.render().messages]
    assert ctx.check() == []
