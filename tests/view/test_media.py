"""Images and files in views: counted, within the budget, and replaced by a marker where they do not fit."""

import random
from typing import Any

import pytest

import quire
from quire.model.messages import Message, ToolCall, count_message_tokens
from quire.model.tokens import VocabularyCounter
from quire.view.clip import clip_exchange
from tests.pictures import anthropic_image, coded, openai_image, pdf, png

COUNT = VocabularyCounter().count


def tokens_of(view: quire.View) -> int:
    return sum(count_message_tokens(message, COUNT) for message in view.messages)


def assert_legal(view: quire.View) -> None:
    assert quire.check_legal(view.openai(), "openai") == []
    assert quire.check_legal(view.responses(), "responses") == []
    assert quire.check_legal(view.anthropic(), "anthropic") == []


def test_an_image_counts_in_the_view() -> None:
    ctx = quire.open("memory:")
    ctx.user([{"type": "text", "text": "What is this?"}])
    before = ctx.render().tokens
    ctx.user([{"type": "text", "text": "And this?"}, openai_image(png(1024, 1024))])
    after = ctx.render()
    assert after.tokens == tokens_of(after)
    assert after.tokens - before > 1_399


@pytest.mark.parametrize("budget", [2_000, 3_000, 8_000])
def test_a_conversation_of_screenshots_stays_within_the_budget(budget: int) -> None:
    chance = random.Random(budget)
    ctx = quire.open("memory:", budget=budget)
    ctx.system("你是一个细心的助手。")
    for turn in range(25):
        ctx.user(f"第{turn}步:请打开第{turn}个页面,然后告诉我你看到了什么。")
        ctx.add(
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"t{turn}", "name": "screenshot", "input": {}}],
            }
        )
        size = chance.choice([(320, 200), (1280, 800), (4000, 3000)])
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": [anthropic_image(png(*size))]}
        ctx.add({"role": "user", "content": [result]})
        view = ctx.render()
        assert tokens_of(view) == view.tokens <= budget
        assert_legal(view)
    assert any(isinstance(m.content, list) for m in ctx.messages())  # the record keeps them all


@pytest.mark.parametrize(
    "block",
    [
        openai_image(b"not an image at all"),
        openai_image(png(3000, 3000)),
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,", "filename": "空.pdf"}},
        anthropic_image(png(3000, 3000)),
    ],
)
def test_an_image_that_cannot_stay_leaves_a_word(block: dict[str, Any]) -> None:
    ctx = quire.open("memory:", budget=900)
    ctx.user([{"type": "text", "text": "请看这张图片。"}, block])
    view = ctx.render()
    assert tokens_of(view) == view.tokens <= 900
    assert "left out" in view.messages[-1].text
    assert "请看这张图片。" in view.messages[-1].text
    assert_legal(view)
    assert isinstance(next(iter(ctx.messages())).content, list)


def test_the_largest_images_go_first() -> None:
    images = [{"type": "image", "data": coded(png(size, size))} for size in (100, 1_500, 100)]
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Compare."}, *images]
    [clipped] = clip_exchange([Message(role="user", content=parts)], 800, "usr-1", COUNT)
    assert isinstance(clipped.content, list)
    assert [part["type"] for part in clipped.content] == ["text", "image", "text", "image"]
    assert count_message_tokens(clipped, COUNT) <= 800


def test_thinking_goes_before_anything_else() -> None:
    thought = {"type": "thinking", "text": "hmm " * 500, "signature": "s"}
    said = Message(
        role="assistant", content=[thought, {"type": "text", "text": "Yes."}], tool_calls=(ToolCall("c", "f"),)
    )
    answer = Message(role="tool", tool_call_id="c", content="done")
    clipped = clip_exchange([said, answer], 100, "usr-1", COUNT)
    assert clipped == [
        Message(role="assistant", content=[{"type": "text", "text": "Yes."}], tool_calls=said.tool_calls),
        answer,
    ]
    [alone] = clip_exchange([Message(role="assistant", content=[thought])], 50, "usr-1", COUNT)
    assert alone.has_content


def test_a_pdf_of_many_pages_is_shown_as_a_word() -> None:
    ctx = quire.open("memory:", budget=8_000)
    document = {"type": "base64", "media_type": "application/pdf", "data": coded(pdf(40))}
    ctx.user([{"type": "document", "source": document, "title": "年报.pdf"}, {"type": "text", "text": "总结一下。"}])
    view = ctx.render()
    assert view.tokens <= 8_000
    assert "总结一下。" in view.messages[-1].text


def test_a_few_words_are_not_clipped_to_a_longer_marker() -> None:
    short = [Message(role="tool", tool_call_id="c", content="好的。"), Message(role="user", content="word " * 500)]
    clipped = clip_exchange(short, 40, "usr-1", COUNT)
    assert clipped[0] == short[0]
    assert sum(count_message_tokens(message, COUNT) for message in clipped) <= 40
    assert clip_exchange(short[:1], 5, "usr-1", COUNT) == short[:1]
