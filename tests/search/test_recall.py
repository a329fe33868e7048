"""recall: the passages that answer the last question stand in the tail, within their share of the budget."""

from random import Random
from typing import Any

import pytest

import quire
from quire import Context, Permission, Segment
from tests.books import WordCounter, everything
from tests.seeds import SEED

SHARE = 0.3
BUDGET = 600


def opened(*facts: str, fillers: int = 40) -> Context:
    """Return a conversation that began with these facts, which are folded by now."""
    ctx = quire.open("memory:", budget=BUDGET, counter=WordCounter())
    for fact in facts:
        ctx.user(fact)
        ctx.assistant("Noted.")
    for number in range(fillers):
        ctx.user(f"The pump number {number} ran without any trouble until the evening of the day.")
        ctx.assistant("Good.")
        ctx.render()
    return ctx


def recalled(ctx: Context, question: str, share: Any = SHARE) -> str:
    """Ask, and return what the view brought back."""
    ctx.user(question)
    view = ctx.render(recall=share)
    assert view.tokens <= BUDGET
    return "\n".join(str(message.content) for part in view.tail for message in part.messages)


@pytest.mark.parametrize(
    ("fact", "question", "needle"),
    [
        ("I bought a kestrel kite in Lisbon.", "Which kite did I buy in Lisbon?", "kestrel"),
        ("凯勒家的托管账户是DE-4471-9902。", "凯勒家的托管账户是什么？", "DE-4471-9902"),
    ],
)
@pytest.mark.parametrize("share", [SHARE, True])
def test_a_folded_answer_comes_back_within_its_share(fact: str, question: str, needle: str, share: Any) -> None:
    assert needle in recalled(opened(fact), question, share)


def test_nothing_comes_back_for_nothing() -> None:
    ctx = opened("I bought a kestrel kite.")
    for question in ("!!!", "zebra?"):
        assert "kestrel" not in recalled(ctx, question)


def test_recall_changes_no_state() -> None:
    ctx = opened("I bought a kestrel kite.")
    ctx.user("Which kite did I buy?")
    ctx.render()
    before = everything(ctx.pages)
    ctx.render(recall=SHARE, preview=True)
    assert everything(ctx.pages) == before


def test_neither_private_nor_deleted_nor_visible_pages_come_back() -> None:
    ctx = opened("The kestrel of the secret garden is deleted.")
    ctx.pages.add_segment(Segment(id="secret", permission=Permission.PRIVATE))
    ctx.pages.create_detail_page("secret", "", "The kestrel is private.", "secret-0")
    ctx.conversation.delete(0)
    ctx.user("The kestrel is visible.")
    ctx.assistant("Yes.")
    back = recalled(ctx, "What is the kestrel?")
    assert [word for word in ("deleted", "private", "visible") if f"is {word}" in back] == []


def test_a_passage_never_takes_more_than_the_budget(request: pytest.FixtureRequest) -> None:
    chance = Random(SEED)
    words = ["pump", "valve", "tank", "gauge", "water", "kite", "水泵", "数据"]
    facts = [" ".join(chance.choices(words, k=chance.randint(1, 40))) for _ in range(20)]
    ctx = opened(*facts, fillers=10)
    for _ in range(200 if request.config.getoption("--long") else 6):
        recalled(ctx, " ".join(chance.choices(words, k=3)) + "?", chance.choice([True, 0.05, 0.3, 0.6]))
        ctx.assistant("I see.")
    assert ctx.check() == []
