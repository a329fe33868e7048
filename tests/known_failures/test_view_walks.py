"""What random walks found: positions of pages in a view."""

import quire
from quire import CompressionConfig, Context, DetailPage
from tests.known_failures import until_step


def _talk() -> Context:
    """Return a conversation that folds at 300 tokens, before it does."""
    ctx = quire.open("memory:", budget=1_600, compression=CompressionConfig(threshold=300, target_tokens=150))
    ctx.user("Where is the pump? " * 20)
    ctx.assistant("It is in the hall. " * 20)
    return ctx


@until_step(3, "the page is drawn in front, by its number")
def test_a_page_whose_index_was_reserved_before_a_fold_comes_after_the_newest_message() -> None:
    ctx = _talk()
    index = ctx.pages.generate_index("mem")
    ctx.user("And now? " * 60)
    before = ctx.render()
    assert before.fold is not None
    ctx.pages.add_page(DetailPage(index=index, name="reserved", parent="mem-0"), "A note.")
    assert ctx.render().openai()[: len(before.openai())] == before.openai()


def test_a_page_whose_index_is_given_after_a_fold_comes_after_the_newest_message() -> None:
    ctx = _talk()
    ctx.user("And now? " * 60)
    before = ctx.render()
    assert before.fold is not None
    ctx.pages.create_detail_page("given", "", "A note.", "mem-0")
    assert ctx.render().openai()[: len(before.openai())] == before.openai()
