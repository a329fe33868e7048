"""Texts that are much larger than a view: drawing reads what it shows, not all of them."""

import pytest

import quire
from quire.view.escaping import Escaping

BUDGET = 4_000
LINE = "A line with some words and the number 12345.\n"


class Characters:
    """A counter that adds up the characters it is given."""

    name = "characters"
    exact = False

    def __init__(self) -> None:
        self.seen = 0

    def count(self, text: str) -> int:
        self.seen += len(text)
        return (len(text) + 3) // 4


def fill(kind: str, counter: Characters, size: int) -> quire.Context:
    """Return a context with one text of this many characters."""
    ctx = quire.open("memory:", budget=BUDGET, counter=counter, key="k")
    text = (LINE * (size // len(LINE) + 1))[:size]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    match kind:
        case "user":
            ctx.user(text)
        case "parts":
            ctx.add({"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": "And?"}]})
        case "assistant":
            ctx.user("Write a lot.")
            ctx.assistant(text)
        case "result":
            ctx.user("Read it.")
            ctx.add({"role": "assistant", "content": None, "tool_calls": [call]})
            ctx.add({"role": "tool", "tool_call_id": "c1", "content": text})
        case "page":
            ctx.user("What is in it?")
            ctx.pages.create_detail_page("Document", "long", text, "mem-0")
    return ctx


@pytest.mark.parametrize("kind", ["user", "parts", "assistant", "result", "page"])
def test_a_render_reads_no_more_of_a_longer_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen_in_render(size: int) -> int:
        counter = Characters()
        ctx = fill(kind, counter, size)
        counter.seen = 0
        view = ctx.render()
        assert quire.check_legal(view.openai(), "openai") == []
        assert view.tokens <= BUDGET
        return counter.seen

    escaped = 0
    real = Escaping.escape_key

    def count_escaped(self: Escaping, text: str) -> str:
        nonlocal escaped
        escaped += len(text)
        return real(self, text)

    monkeypatch.setattr(Escaping, "escape_key", count_escaped)
    short = seen_in_render(400_000)
    escaped_of_short, escaped = escaped, 0
    long = seen_in_render(3_200_000)
    assert long < 1.2 * short + 1_000
    assert escaped < 1.2 * escaped_of_short + 1_000
    assert max(long, escaped) < 100 * 4 * BUDGET


def test_a_long_text_shows_its_ends_without_the_key() -> None:
    counter = Characters()
    ctx = quire.open("memory:", budget=BUDGET, counter=counter, key="amber-otter-41")
    ctx.user("amber-otter-41 begins " + LINE * 10_000 + " ends amber-otter-41")
    shown = str(ctx.render().openai()[-1]["content"])
    assert shown.startswith("a·mber-otter-41 begins ")
    assert shown.endswith(" ends a·mber-otter-41")
    assert " of 450,042 characters of usr-1 left out …]" in shown
    assert ctx.why("usr-1").shown == "clipped"


def test_a_text_that_fits_a_larger_preview_is_shown_whole() -> None:
    ctx = quire.open("memory:", budget=BUDGET, counter=Characters(), key="k")
    text = LINE * 4_000
    ctx.user(text)
    large = ctx.render(max_tokens=100_000, preview=True)
    assert large.openai()[-1]["content"] == text
    assert ctx.render().tokens <= BUDGET
