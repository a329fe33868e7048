"""Random histories: legal ones are written exactly as they were read, and no JSON value breaks the parser."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire import Message, QuireError
from quire.providers import format_messages, parse, parse_each
from tests.providers.histories import ALL, Provider
from tests.providers.pairs import check_pairs

PROVIDERS: tuple[Provider, ...] = ("openai", "responses", "anthropic")
Value = dict[str, Any]

texts = st.text(max_size=90)
visible = texts.filter(str.strip)
ids = st.text("abcdef_-0123456789", min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
jsons = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(texts, jsons, max_size=3)
extras = st.dictionaries(st.sampled_from(["x_trace", "x_score", "x_tags"]), jsons, max_size=2)


def shape(optional: dict[str, Any] | None = None, **required: Any) -> st.SearchStrategy[Value]:
    """Generate a dict with these fields and perhaps some unknown ones."""
    fixed = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in required.items()}
    return st.builds(
        lambda known, extra: {**known, **extra}, st.fixed_dictionaries(fixed, optional=optional or {}), extras
    )


def turns(said: st.SearchStrategy[Value], acted: st.SearchStrategy[list[Value]]) -> st.SearchStrategy[list[Value]]:
    return st.lists(said.map(lambda value: [value]) | acted, max_size=6).map(
        lambda runs: [v for run in runs for v in run]
    )


# OpenAI chat
chat_part = (
    shape(type="text", text=texts)
    | shape(type="image_url", image_url=shape({"detail": st.just("low")}, url=texts))
    | shape(type="file", file=shape(file_data=texts, filename=texts))
    | shape(type="input_audio", input_audio=shape(data=texts, format="wav"))
    | shape(type="x_new", x=jsons)
)
chat_said = (
    shape({"name": ids}, role=st.sampled_from(["system", "developer"]), content=texts)
    | shape({"name": ids}, role="user", content=texts | st.lists(chat_part, min_size=1, max_size=3))
    | shape({"refusal": st.none() | texts, "audio": st.none() | shape(id=ids)}, role="assistant", content=texts)
)


@st.composite
def chat_acted(draw: st.DrawFn) -> list[Value]:
    called = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    function = shape(type="function", function=shape(name=visible, arguments=texts))
    custom = shape(type="custom", custom=shape(name=visible, input=texts))
    calls = [{"id": call_id, **draw(function | custom)} for call_id in called]
    results = [
        draw(shape({"name": ids}, role="tool", tool_call_id=call_id, content=texts))
        for call_id in draw(st.permutations(called))
    ]
    return [draw(shape({"content": st.none() | texts}, role="assistant", tool_calls=st.just(calls))), *results]


# OpenAI Responses
responses_part = (
    shape(type="input_text", text=texts)
    | shape({"detail": st.just("low")}, type="input_image", image_url=texts)
    | shape({"filename": texts}, type="input_file", file_data=texts)
    | shape(type="x_new", x=jsons)
)
output_part = shape(type="output_text", text=texts, annotations=st.lists(objects, max_size=2)) | shape(
    type="refusal", refusal=texts
)
reasoning = shape(
    {"encrypted_content": st.none() | texts},
    type="reasoning",
    id=ids,
    summary=st.lists(shape(type="summary_text", text=texts), max_size=2),
)
responses_said = (
    shape({"phase": st.just("commentary")}, type="message", role="assistant", content=texts)
    | shape(type="message", role=st.sampled_from(["system", "developer", "user"]), content=texts)
    | shape(type="message", role="user", content=st.lists(responses_part, min_size=1, max_size=3))
    | shape(type="message", id=ids, role="assistant", status="completed", content=st.lists(output_part, max_size=2))
    | reasoning
    | shape(type="web_search_call", id=ids, action=objects)
    | shape(type="x_new_call", id=ids, x=jsons)
)


@st.composite
def responses_acted(draw: st.DrawFn) -> list[Value]:
    called = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    items: list[Value] = draw(
        st.lists(reasoning | responses_said.filter(lambda v: v.get("role") == "assistant"), max_size=2)
    )
    kinds = {call_id: draw(st.sampled_from(["function_call", "custom_tool_call", "shell_call"])) for call_id in called}
    for call_id, kind in kinds.items():
        items.append(
            draw(
                shape(
                    {"id": ids}, type=kind, call_id=call_id, name=visible, arguments=texts, input=texts, action=objects
                )
            )
        )
    for call_id in draw(st.permutations(called)):
        output = texts | st.lists(responses_part, max_size=2)
        items.append(draw(shape(type=f"{kinds[call_id]}_output", call_id=call_id, output=output)))
    return items


# Anthropic
text_block = shape(
    {"cache_control": objects, "citations": st.none() | st.lists(objects, max_size=1)}, type="text", text=visible
)
source = (
    shape(type="base64", media_type=st.sampled_from(["image/png", "application/pdf", "x/y"]), data=texts)
    | shape(type="url", url=texts)
    | shape(type="file", file_id=ids)
    | shape(type="text", media_type="text/plain", data=texts)
)
media_block = shape({"title": st.none() | texts}, type=st.sampled_from(["image", "document"]), source=source)
user_block = (
    text_block | media_block | shape(type="search_result", source=texts, title=texts, content=st.lists(text_block))
)
assistant_block = (
    text_block
    | shape(type="thinking", thinking=texts, signature=texts)
    | shape(type="redacted_thinking", data=texts)
    | shape(type="server_tool_use", id=ids, name="web_search", input=objects)
    | shape(type="web_search_tool_result", tool_use_id=ids, content=jsons)
)
anthropic_said = shape(role="user", content=visible | st.lists(user_block, min_size=1, max_size=3)) | shape(
    role="assistant", content=visible | st.lists(assistant_block, min_size=1, max_size=3)
)


@st.composite
def anthropic_acted(draw: st.DrawFn) -> list[Value]:
    called = draw(st.lists(ids, min_size=1, max_size=3, unique=True))
    uses = [draw(shape(type="tool_use", id=call_id, name=visible, input=objects)) for call_id in called]
    content = texts | st.lists(text_block | media_block, min_size=1, max_size=2)
    results = [
        draw(shape({"content": content, "is_error": st.booleans()}, type="tool_result", tool_use_id=call_id))
        for call_id in draw(st.permutations(called))
    ]
    said = draw(st.lists(assistant_block, max_size=2))
    after = draw(st.lists(user_block, max_size=2))
    blocks = draw(st.permutations([*said, *uses]))
    return [
        draw(shape(role="assistant", content=st.just(blocks))),
        draw(shape(role="user", content=st.just([*results, *after]))),
    ]


HISTORIES = {
    "openai": turns(chat_said, chat_acted()),
    "responses": turns(responses_said, responses_acted()),
    "anthropic": turns(anthropic_said, anthropic_acted()),
}
TELLING: dict[Provider, Value] = {
    "openai": {"role": "user", "content": "x", "name": "ada"},
    "responses": {"type": "message", "role": "user", "content": "x"},
    "anthropic": {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
}
histories = st.sampled_from(PROVIDERS).flatmap(lambda provider: st.tuples(st.just(provider), HISTORIES[provider]))


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal as JSON: true is not 1, and 1 is not 1.0."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def check_always(law: Callable[[Any], None], values: st.SearchStrategy[Any], *, usual: int, long: bool) -> None:
    """Check a law on random values: a few, or hundreds in a long run, which prints how to repeat a failure."""
    settings(max_examples=500 if long else usual, deadline=None, print_blob=True)(given(values)(law))()


def test_any_history_goes_back_as_it_came_and_keeps_its_pairs_everywhere(request: pytest.FixtureRequest) -> None:
    check_always(check_journey, histories, usual=4, long=request.config.getoption("--long"))


def check_journey(case: tuple[Provider, list[Value]]) -> None:
    provider, history = case
    history = [TELLING[provider], *history]
    messages = parse(history, provider)
    assert same(format_messages(messages, provider), history)
    assert list(parse_each(iter(history), provider)) == messages
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(messages), type=list[Message])
    assert same(format_messages(stored, provider), history)
    for target in PROVIDERS:
        check_pairs(format_messages(messages, target), target)


def vocabulary(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield every key and short text of the recorded histories, and whether it is a key."""
    if isinstance(value, str):
        yield value[:30], False
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield key, True
        yield from vocabulary(inner)
    for inner in value if isinstance(value, list) else ():
        yield from vocabulary(inner)


SPOKEN = sorted({entry for kinds in ALL.values() for entry in vocabulary(list(kinds.values()))})
words = st.sampled_from([word for word, is_key in SPOKEN if not is_key])
keys = st.sampled_from([word for word, is_key in SPOKEN if is_key] + ["choices", "finish_reason", "usage", "model"])
likely = st.recursive(
    words | scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
)
nearly = st.fixed_dictionaries({"role": words, "content": likely}, optional={"tool_calls": likely, "type": words})


def test_nothing_that_looks_like_json_breaks_anything(request: pytest.FixtureRequest) -> None:
    values = st.lists(nearly | likely, max_size=3) | likely
    check_always(check_any_value, values, usual=20, long=request.config.getoption("--long"))


def check_any_value(value: Any) -> None:
    try:
        messages = parse(value)
    except QuireError:
        return
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(messages), type=list[Message])
    assert stored == messages
    for provider in PROVIDERS:
        json.dumps(format_messages(messages, provider), allow_nan=False)
