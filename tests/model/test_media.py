"""Tokens of messages with images, files, audio and encoded data."""

import json
from base64 import encodebytes
from typing import Any

import pytest

from quire.model.media import PDF_PAGE, UNKNOWN_FILE, UNKNOWN_IMAGE, count_media_tokens
from quire.model.messages import PER_MESSAGE, count_message_tokens
from quire.providers import parse
from tests.pictures import anthropic_image, coded, data_url, jpeg, openai_image, pdf, png, wav

SQUARE = 1_399  # an image of 1,024 pixels square


def count(text: str) -> int:
    return len(text)


def cost(*blocks: dict[str, Any], role: str = "user") -> int:
    """Return the tokens of the parts of one message."""
    [message] = parse({"role": role, "content": list(blocks)})
    return count_message_tokens(message, count) - PER_MESSAGE


@pytest.mark.parametrize(
    "block",
    [
        openai_image(png(1024, 1024)),
        openai_image(jpeg(1024, 1024, before=300_000)),
        anthropic_image(png(1024, 1024)),
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encodebytes(png(1024, 1024)).decode()}"}},
        {"type": "input_image", "image_url": data_url(png(1024, 1024)), "detail": "auto"},
    ],
)
def test_an_image_costs_what_its_size_costs_in_every_shape(block: dict[str, Any]) -> None:
    assert cost(block) == SQUARE


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/picture.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        openai_image(b"no image at all" * 1_000),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%%"}},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "图片" * 500}},
    ],
)
def test_an_image_of_unknown_size_costs_the_most(block: dict[str, Any]) -> None:
    assert cost(block) == UNKNOWN_IMAGE


def test_an_image_in_a_tool_result_counts_beside_its_text() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "看"}]}
    result["content"].append(anthropic_image(png(1024, 1024)))  # type: ignore[attr-defined]
    assert cost(result) == 1 + SQUARE


def test_a_pdf_costs_by_its_pages() -> None:
    assert cost({"type": "file", "file": {"file_data": data_url(pdf(7), "application/pdf")}}) == 7 * PDF_PAGE
    document = {"type": "base64", "media_type": "application/pdf", "data": coded(pdf(2))}
    assert cost({"type": "document", "source": document}) == 2 * PDF_PAGE


def test_a_pdf_with_hidden_pages_costs_by_what_it_tells_or_by_its_size() -> None:
    told = b"%PDF-1.7 << /Type /Pages /Count 12 >> " + bytes(1_000)
    silent = b"%PDF-1.7 " + bytes(120_000)
    assert count_media_tokens({"type": "file", "data": coded(told)}) == 12 * PDF_PAGE
    assert count_media_tokens({"type": "file", "data": coded(silent)}) == 3 * PDF_PAGE


def test_other_files_cost_by_their_size_or_as_a_page() -> None:
    assert count_media_tokens({"type": "file", "data": coded(b"a,b\n" * 300)}) == 300
    assert count_media_tokens({"type": "file", "url": "https://example.com/a.pdf"}) == UNKNOWN_FILE
    assert count_media_tokens({"type": "file", "text": "words"}) == 0
    text = {"type": "text", "media_type": "text/plain", "data": "你好"}
    assert cost({"type": "document", "source": text, "title": "信"}) == 3


def test_sound_costs_ten_tokens_a_second() -> None:
    assert count_media_tokens({"type": "audio", "format": "wav", "data": coded(wav(3))}) == 31  # its head is sound too
    assert count_media_tokens({"type": "audio", "format": "mp3", "data": coded(bytes(8_000))}) == 21
    assert count_media_tokens({"type": "audio", "format": "wav", "data": "????"}) == 1
    assert count_media_tokens({"type": "audio", "id": "audio_1", "transcript": "Hi"}) == 0


def test_thinking_counts_with_its_text_and_without_its_signature() -> None:
    block = {"type": "thinking", "thinking": "想一想", "signature": "S" * 4_000}
    assert cost(block, {"type": "text", "text": "好"}, role="assistant") == 4
    sealed = {"type": "redacted_thinking", "data": coded(bytes(4_000))}
    assert cost(sealed, {"type": "text", "text": "好"}, role="assistant") == 1_001 + 1


def test_base64_in_items_of_hosted_tools_is_not_counted_as_text() -> None:
    picture = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": ""}
    picture["result"] = coded(png(1024, 1024) + bytes(300_000))
    [message] = parse([picture])
    bare = len(json.dumps({**picture, "result": ""}, separators=(",", ":")))
    assert count_message_tokens(message, count) == PER_MESSAGE + bare + SQUARE
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "北京的天气 " * 100}}
    assert cost(search, role="assistant") == len(json.dumps(search, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("broken", ["{", "[" * 100_000, "null", "3"])
def test_a_part_that_cannot_be_read_costs_nothing_and_raises_nothing(broken: str) -> None:
    assert count_media_tokens({"type": "other", "kind": "x", "part": broken}) == 0
    assert count_media_tokens({"type": "image", "data": None}) == UNKNOWN_IMAGE
    assert count_media_tokens({"type": "file"}) == UNKNOWN_FILE
    assert count_media_tokens({}) == 0
