"""The methods of a view, its options, and clipping."""

from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import CompressionConfig, InvalidValue, Price, RenderOptions, ToolCall
from quire.errors import UnknownOption
from quire.model.tokens import VocabularyCounter
from quire.view.clip import clip_text
from tests.view_laws.laws import Forms, check_size


def talking(budget: int = 100_000) -> quire.Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are careful.")
    ctx.user("Hello")
    ctx.assistant("Let me see.", tool_calls=[ToolCall("c", "look")])
    ctx.tool_result("c", "Nothing.")
    return ctx


def test_what_is_handed_out_is_the_callers_own() -> None:
    ctx = talking()
    first = ctx.render().openai()
    first[-2]["tool_calls"][0]["function"]["name"] = "changed"
    first[0]["content"] = "changed"
    again = ctx.render().openai()
    assert again[-2]["tool_calls"][0]["function"]["name"] == "look"
    assert again[0]["content"] == "You are careful."


def test_the_form_for_anthropic_is_a_plain_dict_of_parameters() -> None:
    view = talking().render()
    request = view.anthropic()
    assert type(request) is dict
    assert list(request) == ["system", "messages"]
    assert request["messages"][0]["role"] == "user"
    assert list(talking().render(include_system_prompt=False).anthropic()) == ["messages"]


def test_cache_marks_are_few_and_at_the_end() -> None:
    request = talking().render().anthropic(cache=True)
    text = str(request)
    assert 1 < text.count("cache_control") <= 4
    assert quire.check_legal(request, "anthropic") == []


def test_two_views_are_compared_page_by_page() -> None:
    ctx = talking()
    before = ctx.render()
    ctx.user("More")
    ctx.pages.hide("usr-1")
    after = ctx.render()
    changes = {change.page: change.change for change in after.diff(before)}
    assert changes == {"usr-1": "whole → line", "usr-3": "shown whole"}
    assert {change.page: change.change for change in before.diff(after)}["usr-3"] == "gone"


def test_what_a_view_costs_follows_the_cache() -> None:
    ctx = talking()
    first = ctx.render()
    assert first.cost() == first.tokens
    second = ctx.render()
    assert second.shared_prefix == second.tokens
    assert second.cost() == pytest.approx(0.1 * second.tokens)
    assert second.cost(Price(read=0.5)) == pytest.approx(0.5 * second.tokens)
    assert first.cost(marked=True) == pytest.approx(1.25 * first.tokens)


def test_the_system_prompt_can_be_left_out() -> None:
    view = talking().render(include_system_prompt=False)
    assert [message.role for message in view.messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": -1},
        {"max_tokens": "many"},
        {"reserve": None},
        {"preview": 1},
        {"windows": "left"},
        {"recall": 5},
        {"colour": "red"},
    ],
)
def test_options_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    ctx = talking()
    with pytest.raises(InvalidValue, match=next(iter(bad))):
        ctx.render(**bad)
    with pytest.raises(InvalidValue, match="options"):
        ctx.render({"max_tokens": 5})  # type: ignore[arg-type]
    assert ctx.render(RenderOptions(max_tokens=5_000)).budget == 5_000


def test_a_misspelt_option_is_named_with_those_there_are() -> None:
    ways: tuple[Callable[..., object], ...] = (RenderOptions, talking().render)
    for ask in ways:
        with pytest.raises(
            InvalidValue, match=r"^'recal' is not an option of RenderOptions\. .* max_tokens, .*recall, "
        ):
            ask(recal=True)
    with pytest.raises(InvalidValue, match=r"^'treshold' is not an option of .* enabled, threshold, "):
        CompressionConfig(treshold=500)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("said", "meant"), [("budget", "max_tokens"), ("recal", "recall"), ("max_token", "max_tokens")]
)
def test_what_a_misspelt_option_was_meant_to_be_is_told(said: str, meant: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        talking().render(**{said: 100})  # type: ignore[arg-type]
    assert (caught.value.option, caught.value.suggestion) == (said, meant)
    assert f"Did you mean {meant!r}?" in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"enabled": None},
        {"threshold": -1},
        {"target_tokens": "x"},
        {"keep_turns": 1.5},
        {"threshold": 10, "target_tokens": 20},
    ],
)
def test_configurations_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        quire.open("memory:", compression=CompressionConfig(**bad))


def test_a_sliding_window_keeps_so_many_turns() -> None:
    ctx = quire.open("memory:", budget=2_000, compression=CompressionConfig(threshold=500, sliding_window=2))
    for turn in range(12):
        ctx.user(f"question {turn} " + "word " * 40)
        ctx.assistant("answer " + "word " * 40)
    shown = [page.index for page in ctx.render().pages if page.granularity == "whole"]
    assert shown == ["usr-21", "usr-22", "usr-23", "usr-24"]


def test_without_compression_nothing_is_folded_for_good() -> None:
    ctx = quire.open("memory:", budget=600, compression=CompressionConfig(enabled=False))
    for turn in range(20):
        ctx.user(f"question {turn} " + "word " * 40)
    seq = ctx.seq
    assert ctx.render().tokens <= 600
    assert ctx.seq == seq


def test_a_segment_beyond_its_capacity_folds_its_oldest_pages() -> None:
    ctx = talking()
    ctx.pages.update_segment("mem", max_capacity=100)
    for number in range(5):
        ctx.pages.create_detail_page(f"note {number}", "", "word " * 40, "mem-0")
    view = ctx.render()
    assert [(page.index, page.granularity) for page in view.pages if page.index.startswith("mem")] == [
        ("mem-1…mem-5", "line")
    ]
    assert sum(part.tokens for part in view.parts if part.kind == "segment") <= 50  # a note takes 46, its heading 13


def test_a_fold_is_told_of() -> None:
    ctx = quire.open("memory:", budget=500)
    told: list[Any] = []
    stop = ctx.on_fold(told.append)
    for turn in range(30):
        ctx.user(f"question {turn} about HAT{turn} " + "word " * 30)
        ctx.render()
    assert told
    assert all(fold.account.lost == 0 and fold.saved > 0 for fold in told)
    stop()
    count = len(told)
    for turn in range(30):
        ctx.user(f"question {turn} " + "word " * 30)
        ctx.render()
    assert len(told) == count


@pytest.mark.parametrize("text", ["word " * 5_000, "数据" * 5_000, "🙂" * 3_000, "QUJD" * 5_000, "a" * 30_000])
@pytest.mark.parametrize("limit", [30, 100, 1_000])
def test_a_clipped_text_keeps_both_ends_and_says_what_is_missing(text: str, limit: int) -> None:
    count = VocabularyCounter().count
    clipped = clip_text(f"START {text} END", limit, "usr-7", count)
    assert count(clipped) <= limit
    assert "usr-7" in clipped
    if limit >= 100:
        assert clipped.startswith("START")
        assert clipped.endswith("END")


def test_a_cleanup_gives_the_messages_of_a_view_their_new_indices_and_costs_no_cache() -> None:
    ctx = talking()
    gone = ctx.user("A slip of the tongue.")
    ctx.user("More")
    ctx.conversation.delete(gone)
    before = ctx.render()
    ctx.conversation.cleanup()
    after = ctx.render()
    assert [message.index for message in after.messages if message.index >= 0] == [0, 1, 2, 3, 4]
    assert after.openai() == before.openai()
    assert after.shared_prefix == after.tokens


def test_what_is_drawn_anew_in_the_same_words_is_shared() -> None:
    ctx = quire.open("memory:")
    ctx.assistant("I speak first.")
    ctx.pages.create_detail_page("Note", "", "text", "mem-0")
    ctx.render()
    ctx.pages.create_detail_page("Private", "", "text", "win-0")
    ctx.undo(ctx.seq)
    again = ctx.render()
    assert again.shared_prefix == again.tokens


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "name": "张伟", "content": "你好"},
        {"role": "user", "name": "ada", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 'not "json"'}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "custom": {"name": "f", "input": "select 1"}}]},
    ],
)
def test_no_form_costs_more_than_the_view_says(message: dict[str, Any]) -> None:
    ctx = quire.open("memory:")
    ctx.add(message)
    view = ctx.render()
    check_size(view, Forms(view), view.tokens)
