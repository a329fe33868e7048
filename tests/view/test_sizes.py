"""Extreme sizes, images and files: a view stays within its budget and legal, and needs little time and memory."""

import random
from typing import Any

import pytest

import quire
from quire import Context, IrreducibleFloor, Segment, ToolCall, View
from tests.pictures import anthropic_image, coded, openai_image, pdf, png
from tests.shallow_stack import shallow_stack
from tests.view_laws.laws import check_shown

BUDGET = 2_000


def asked(budget: int = BUDGET) -> Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are careful. 请谨慎。")
    ctx.user("Hello")
    return ctx


def check(ctx: Context) -> View:
    """Check the laws of a single view, and that the next one is the same."""
    view = ctx.render()
    check_shown(ctx, view, ctx.budget)
    assert ctx.render().openai() == view.openai()
    assert ctx.check() == []
    return view


TEXTS = {
    "prose": "The pump of tank 7 was replaced on 2024-05-20. ",
    "cjk": "数据库连接失败，请检查网络设置。",
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3ODk+/w==",
    "one letter": "a",
    "lines": "\n",
}


def large(kind: str) -> str:
    return "START" + TEXTS[kind] * (60_000 // len(TEXTS[kind])) + "END"


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("who", ["user", "assistant", "tool"])
def test_one_message_far_larger_than_the_budget(kind: str, who: str) -> None:
    ctx, text = asked(), large(kind)
    if who == "user":
        ctx.user(text)
    else:
        ctx.assistant(text if who == "assistant" else None, [ToolCall("c", "read")] if who == "tool" else None)
    if who == "tool":
        ctx.tool_result("c", text)
    shown = check(ctx).messages[-1]
    assert (shown.text[:5], shown.text[-3:]) == ("START", "END")
    page = str(ctx.conversation.page_of(shown.index))
    assert page in shown.text  # the mark of what is left out names the page
    assert ctx.why(page).shown == "clipped"
    start = len(text) // 2
    assert text[start : start + 50].strip() in ctx.tools.call("read_page", {"page": page, "start": start})


@pytest.mark.parametrize("budget", [1, 60])
def test_a_budget_that_is_too_small_for_anything(budget: int) -> None:
    ctx = asked(budget)
    seq = ctx.seq
    with pytest.raises(IrreducibleFloor) as caught:
        ctx.render()
    assert "sys-1" in dict(caught.value.parts)
    assert caught.value.budget == budget < caught.value.tokens
    assert ctx.seq == seq
    assert ctx.render(max_tokens=500).tokens <= 500


def test_once_a_view_fits_again_every_pinned_page_is_in_it() -> None:
    ctx = quire.open("memory:", budget=1_150)
    pinned = []
    for number, words in enumerate(((20, 20), (20, 60), (20, 120), (120, 60))):
        ctx.pages.add_segment(Segment(id=f"s{number}", name=f"Notes {number}"))
        for count in words:
            text = f"note {number} " * count
            pinned.append(ctx.pages.create_detail_page("note", "", text, f"s{number}-0", pinned=True))
    ctx.user("Hello")
    for _ in range(2):
        with pytest.raises(IrreducibleFloor):
            ctx.render()
        ctx.pages.unpin(pinned[4])
        ctx.pages.archive(pinned.pop(4))
    view = ctx.render()
    assert set(pinned) <= {page.index for page in view.pages if page.granularity == "whole"}


class Characters:
    """A counter that adds up the characters that it is given."""

    name = "characters"
    exact = False

    def __init__(self) -> None:
        self.seen = 0

    def count(self, text: str) -> int:
        self.seen += len(text)
        return (len(text) + 3) // 4


@pytest.mark.parametrize("kind", ["message", "page"])
def test_a_render_reads_no_more_of_a_longer_text(kind: str) -> None:
    seen = []
    for size in (400_000, 3_200_000):
        counter, text = Characters(), "A line with some words and the number 12345.\n" * (size // 45)
        ctx = quire.open("memory:", budget=4_000, counter=counter, key="k")
        ctx.user(text if kind == "message" else "What is in it?")
        if kind == "page":
            ctx.pages.create_detail_page("Document", "long", text, "mem-0")
        counter.seen = 0
        assert ctx.render().tokens <= 4_000
        seen.append(counter.seen)
    assert seen[1] < 1.2 * seen[0] + 1_000 < 100 * 4 * 4_000


@pytest.mark.parametrize("segment", ["mem-0", "usr-0"])
def test_folders_may_lie_deeper_than_python_calls_go(segment: str) -> None:
    ctx = asked(100_000)
    folder = segment
    ctx.render()  # what is imported late is imported
    with shallow_stack(150):
        for number in range(250):
            folder = ctx.pages.create_contents_page(f"f {number}", "", folder)
        ctx.pages.create_detail_page("Leaf", "", "the deepest text", folder)
        assert "the deepest text" in str(ctx.render().openai())


def test_a_conversation_of_screenshots_stays_within_the_budget() -> None:
    chance, ctx = random.Random(3), asked(3_000)
    for turn in range(15):
        ctx.user(f"第{turn}步:请打开第{turn}个页面,然后告诉我你看到了什么。")
        call = {"type": "tool_use", "id": f"t{turn}", "name": "screenshot", "input": {}}
        image = anthropic_image(png(*chance.choice([(320, 200), (1280, 800), (4000, 3000)])))
        ctx.add({"role": "assistant", "content": [call]})
        ctx.add({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{turn}", "content": [image]}]})
        check_shown(ctx, ctx.render(), 3_000)
    assert any(isinstance(message.content, list) for message in ctx.messages())  # the record keeps them all


DOCUMENT = {"type": "base64", "media_type": "application/pdf", "data": coded(pdf(40))}
BLOCKS: tuple[dict[str, Any], ...] = (
    openai_image(b"not an image at all"),
    openai_image(png(3000, 3000)),
    anthropic_image(png(3000, 3000)),
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,", "filename": "空.pdf"}},
    {"type": "document", "source": DOCUMENT, "title": "年报.pdf"},
)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_image_or_file_that_cannot_stay_leaves_a_word(block: dict[str, Any]) -> None:
    ctx = quire.open("memory:", budget=900)
    ctx.user([{"type": "text", "text": "请看这张图片。"}, block])
    view = check(ctx)
    assert "请看这张图片。" in view.messages[-1].text
    assert len(view.messages[-1].text) > len("请看这张图片。")
    assert isinstance(next(iter(ctx.messages())).content, list)
