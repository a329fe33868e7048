"""From one provider to another: text, calls and results are kept, other parts become marks."""

import json
from itertools import dropwhile

import pytest

from quire import Message, ToolCall
from quire.providers import anthropic, format_messages, parse
from tests.providers.histories import ALL, CASES, LONG, PDF, PNG, Provider
from tests.providers.pairs import check_pairs

PROVIDERS: tuple[Provider, ...] = ("openai", "responses", "anthropic")
CROSSINGS = [(*case, target) for case in CASES for target in PROVIDERS if target != case[0]]
each_crossing = pytest.mark.parametrize(("provider", "name", "target"), CROSSINGS)


@each_crossing
def test_words_calls_and_results_carry_over(provider: Provider, name: str, target: Provider) -> None:
    messages = parse(ALL[provider][name])
    values = format_messages(messages, target)
    check_pairs(values, target)
    found = json.dumps([values, anthropic.system(messages)], ensure_ascii=False)
    for message in messages:
        for line in filter(str.strip, message.text.splitlines()):
            assert json.dumps(line, ensure_ascii=False)[1:-1] in found
        for call in message.tool_calls:
            assert call.name in found


@each_crossing
def test_thinking_stays_with_its_provider(provider: Provider, name: str, target: Provider) -> None:
    found = json.dumps(format_messages(parse(ALL[provider][name]), target))
    for secret in ("gAAAAAB", "EqQB", "EmwK", "Paris first.", "Two cities."):
        assert secret not in found


@each_crossing
def test_there_and_back_keeps_words_and_pairs(provider: Provider, name: str, target: Provider) -> None:
    there = parse(format_messages(parse(ALL[provider][name]), target))
    back = format_messages(there, provider)
    check_pairs(back, provider)
    assert _words(parse(back)) == _words(there)


def _words(messages: list[Message]) -> list[str]:
    """Return the messages after the prompt."""
    after = dropwhile(lambda message: message.role == "system", messages)
    return [message.text for message in after if message.text.strip()]


@pytest.mark.parametrize(("provider", "name"), CASES)
def test_anthropic_gets_no_empty_content(provider: Provider, name: str) -> None:
    for value in format_messages(parse(ALL[provider][name]), "anthropic"):
        assert value["content"]
        blocks = (
            value["content"] if isinstance(value["content"], list) else [{"type": "text", "text": value["content"]}]
        )
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")


@pytest.mark.parametrize(
    "text", ["{", "[1]", "null", '"x"', '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', "[" * 9_999]
)
def test_arguments_that_are_no_object_stay_readable(text: str) -> None:
    message = Message(role="assistant", tool_calls=(ToolCall("a", "f", text),))
    [value] = format_messages([message], "anthropic")
    assert value["content"][0]["input"] == {"_raw": text}


def test_a_custom_tool_is_answered_as_one() -> None:
    calls = parse(ALL["openai"]["custom tool"])[1]
    values = format_messages([calls, Message(role="tool", tool_call_id="call_9", content="1")], "responses")
    assert values == ALL["responses"]["custom tool"][1:]
    assert format_messages([calls], "anthropic")[0]["content"][0]["input"] == {"input": "select 1"}


def test_images_and_files_change_their_dress() -> None:
    to_anthropic = format_messages(parse(ALL["openai"]["images, audio and files"]), "anthropic")[0]["content"]
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    assert to_anthropic == [
        {"type": "text", "text": "ada:"},
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "text", "text": "[audio]"},
        {"type": "text", "text": "[file]"},
        {"type": "document", "source": pdf, "title": "a.pdf"},
        {"type": "document", "source": pdf, "title": "b.pdf"},
    ]
    to_openai = format_messages(parse(ALL["anthropic"]["images and documents"]), "openai")[0]["content"]
    assert to_openai == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "text", "text": "[image]"},
        {"type": "file", "file": {"filename": "Terms", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "text", "text": f"T\n{LONG}"},
        {"type": "text", "text": "[file: https://example.com/a.pdf]"},
        {"type": "text", "text": "Page one."},
        {"type": "text", "text": "[file]"},
        {"type": "text", "text": "Found\nA fact."},
        {"type": "text", "text": "Compare."},
    ]
