"""The answers of the strict provider: plain and streamed, their usage with the prefix cache, and faults."""

from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.marks import long
from tests.strict_provider import Body, Call, Fault, Reply, State, StrictProvider, make_script
from tests.strict_provider.cases import MODEL, SCHEMA

BROKEN = (httpx2.RemoteProtocolError, anthropic.APIConnectionError, openai.APIConnectionError)
WHOLE = Reply("It is 上海.", (Call("t1", "look", {"a": 1}), Call("t2", "look", {"b": "二"})), ("hm", ""))
LONG = "some words that fill the room " * 400
TOOLS: list[Any] = [{"name": "look", "input_schema": SCHEMA}]
RESPONSES_TOOLS: list[Any] = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]


def ask_claude(claude: Anthropic, messages: list[Any], **more: Any) -> Any:
    return claude.messages.create(model=MODEL, max_tokens=100, messages=messages, **more)


def ask_chat(client: OpenAI, messages: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(model="gpt-5", messages=messages, **more)


def ask_responses(client: OpenAI, items: list[Any], **more: Any) -> Any:
    return client.responses.create(model="gpt-5", input=items, **more)


def user(content: Any = "Where?") -> Body:
    return {"role": "user", "content": content}


def test_a_responses_stream_adds_up_to_the_plain_answer(strict: StrictProvider, client: OpenAI) -> None:
    strict.script = lambda _: WHOLE
    plain = ask_responses(client, [user()], tools=RESPONSES_TOOLS)
    with client.responses.stream(model="gpt-5", input=[user()], tools=RESPONSES_TOOLS) as stream:  # type: ignore[list-item]
        events = list(stream)
        streamed = stream.get_final_response()
    assert [item.type for item in plain.output] == ["reasoning", "message", "function_call", "function_call"]
    for one, other in zip(plain.output, streamed.output, strict=True):
        ignored = {"id", "parsed_arguments", "content"}
        assert one.model_dump(exclude=ignored) == other.model_dump(exclude=ignored)
    assert streamed.output_text == plain.output_text == "It is 上海."
    assert [event.sequence_number for event in events if event.type != "response.output_text.delta"][:2] == [0, 1]
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_alone_that_was_cut_off(
    strict: StrictProvider, claude: Anthropic, client: OpenAI, stream: bool
) -> None:
    strict.script = lambda _: Reply(thinking=("hm",), truncated=True)
    if stream:
        with claude.messages.stream(model=MODEL, max_tokens=100, messages=[user()]) as events:  # type: ignore[list-item]
            message = events.get_final_message()
        *_, last = ask_responses(client, [user()], stream=True)
        response = last.response
        *_, last = ask_chat(client, [user()], stream=True)
        finish = last.choices[0].finish_reason
    else:
        message = ask_claude(claude, [user()])
        response = ask_responses(client, [user()])
        finish = ask_chat(client, [user()]).choices[0].finish_reason
    assert message.stop_reason == "max_tokens"
    assert [block.type for block in message.content] == ["thinking"]
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert [item.type for item in response.output] == ["reasoning"]
    assert finish == "length"


def test_the_prefix_cache_of_openai(strict: StrictProvider, client: OpenAI) -> None:
    now = [0.0]
    strict.state = State(clock=lambda: now[0])

    def ask(ask_it: Any, *contents: str) -> tuple[int, int]:
        usage = ask_it(client, [user(content) for content in contents]).usage
        if hasattr(usage, "input_tokens"):
            return usage.input_tokens, usage.input_tokens_details.cached_tokens
        return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    for ask_it in (ask_chat, ask_responses):
        strict.state = State(clock=lambda: now[0])
        whole, cached = ask(ask_it, LONG)
        assert cached == 0
        assert whole > 2_000
        assert ask(ask_it, LONG, "more") == (whole + 5, whole // 128 * 128)
        assert ask(ask_it, "x" + LONG, "more")[1] == 0
        assert ask(ask_it, "short", "more")[1] == 0
        assert ask(ask_it, "short", "more", "and more")[1] == 0  # below 1,024 tokens
        now[0] += 299
        assert ask(ask_it, LONG)[1] == whole // 128 * 128  # the use makes it live longer
        now[0] += 299
        assert ask(ask_it, LONG)[1] == whole // 128 * 128
        now[0] += 301
        assert ask(ask_it, LONG)[1] == 0


def test_the_prefix_cache_of_anthropic(strict: StrictProvider, claude: Anthropic) -> None:
    now = [0.0]
    strict.state = State(clock=lambda: now[0])

    def ask(*contents: str, marked: int = -1, ttl: str = "5m") -> tuple[int, int, int]:
        blocks: list[Body] = [{"type": "text", "text": content} for content in contents]
        if marked >= 0:
            blocks[marked]["cache_control"] = {"type": "ephemeral", "ttl": ttl}
        usage = ask_claude(claude, [user([block]) for block in blocks]).usage
        return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens

    whole, *none = ask(LONG)
    assert none == [0, 0]
    assert ask(LONG, marked=0) == (0, whole, 0)
    assert ask(LONG, "more") == (whole + 5, 0, 0)  # without a marker nothing is read
    assert ask(LONG, "more", marked=1) == (0, 5, whole)
    assert ask(LONG, "more", "and more", marked=2) == (0, 6, whole + 5)
    assert ask("x" + LONG, "more", marked=0)[2] == 0
    assert ask("short", marked=0)[1:] == (0, 0)
    now[0] += 301
    assert ask(LONG, marked=0, ttl="1h") == (0, whole, 0)
    now[0] += 3_599
    assert ask(LONG, marked=0) == (0, 0, whole)


@pytest.mark.parametrize(
    ("status", "of_anthropic", "of_openai"),
    [
        (429, anthropic.RateLimitError, openai.RateLimitError),
        (500, anthropic.InternalServerError, openai.InternalServerError),
        (529, anthropic.InternalServerError, openai.InternalServerError),
    ],
)
def test_faults(
    strict: StrictProvider, claude: Anthropic, client: OpenAI, status: int, of_anthropic: Any, of_openai: Any
) -> None:
    strict.script = lambda _: Fault(status, retry_after="1")
    with pytest.raises(of_anthropic) as error:
        ask_claude(claude, [user()])
    assert error.value.status_code == status
    assert error.value.response.headers["retry-after"] == "1"
    for ask_it in (ask_chat, ask_responses):
        with pytest.raises(of_openai) as other:
            ask_it(client, [user()])
        assert other.value.status_code == status


def test_a_retry_meets_the_same_request(strict: StrictProvider) -> None:
    faults = [Fault(529, retry_after="0.01"), Fault(429, retry_after="0.01")]
    strict.script = lambda _: faults.pop() if faults else Reply("Yes.")
    with Anthropic(base_url=strict.url, api_key="none", max_retries=2) as claude:
        assert ask_claude(claude, [user()]).content[0].text == "Yes."
    assert strict.requests == [strict.requests[0]] * 3


def test_streams_that_end_early(strict: StrictProvider, claude: Anthropic, client: OpenAI) -> None:
    strict.script = lambda _: Reply("half an answer", cut=3)
    with pytest.raises(BROKEN):
        list(ask_claude(claude, [user()], stream=True))
    for ask_it in (ask_chat, ask_responses):
        with pytest.raises(BROKEN):
            list(ask_it(client, [user()], stream=True))
    with pytest.raises(BROKEN):
        ask_claude(claude, [user()])
    strict.script = lambda _: Reply("half an answer", cut=3, clean=True)
    assert len(list(ask_responses(client, [user()], stream=True))) == 3
    strict.script = lambda _: Reply("half an answer", cut=3, fault=Fault(529))
    with pytest.raises(anthropic.APIStatusError):
        list(ask_claude(claude, [user()], stream=True))
    with pytest.raises(openai.APIError):
        list(ask_responses(client, [user()], stream=True))


@pytest.mark.parametrize("seed", [0, *long(*range(1, 20))])
def test_a_seeded_model_drives_agent_loops(claude: Anthropic, strict: StrictProvider, seed: int) -> None:
    strict.script = make_script(seed, faults=0.1)
    messages: list[Any] = []
    for turn in range(6):
        messages.append(user(f"question {turn}"))
        while messages[-1]["role"] == "user":
            try:
                answer = ask_claude(claude, messages, tools=TOOLS)
            except (anthropic.RateLimitError, anthropic.InternalServerError):
                continue
            if answer.stop_reason == "max_tokens":
                messages.append({"role": "user", "content": "Go on."})
                continue
            messages.append({"role": "assistant", "content": answer.content})
            calls = [block for block in answer.content if block.type == "tool_use"]
            if calls:
                results = [{"type": "tool_result", "tool_use_id": call.id, "content": "found"} for call in calls]
                messages.append(user(results))
    assert strict.refused == []
    one, other = make_script(seed), make_script(seed)
    assert list(map(one, strict.requests)) == list(map(other, strict.requests))
