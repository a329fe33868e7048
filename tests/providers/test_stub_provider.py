"""The stub provider with the real SDKs: all three APIs, plain and streamed, texts and calls."""

from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import Message, ToolCall
from quire.testing import StubProvider
from quire.testing.stub_provider import quote_answer

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
anthropic_turns = pytest.importorskip("quire.adapters.anthropic")
openai_turns = pytest.importorskip("quire.adapters.openai")

Ask = Callable[[StubProvider, quire.Context], object]


def _openai(stub: StubProvider) -> Any:
    return openai.OpenAI(base_url=f"{stub.url}/v1", api_key="none")


def _anthropic(stub: StubProvider) -> Any:
    return anthropic.Anthropic(base_url=stub.url, api_key="none")


TURNS: dict[str, Ask] = {
    "chat": lambda stub, ctx: openai_turns.complete(_openai(stub), ctx, model="m"),
    "responses-stream": lambda stub, ctx: list(openai_turns.stream_response(_openai(stub), ctx, model="m")),
    "anthropic": lambda stub, ctx: anthropic_turns.complete(_anthropic(stub), ctx, model="m", max_tokens=9),
}


@pytest.fixture(params=TURNS)
def ask(request: pytest.FixtureRequest) -> Ask:
    return TURNS[request.param]


def test_a_question_is_answered_with_a_sentence_of_the_request(ask: Ask) -> None:
    with StubProvider() as stub, quire.open("memory:") as ctx:
        for text in (
            "我喜欢靠窗的座位。",
            "The code of the vault is KESTREL-4711. It is new.",
            "Which code has the vault?",
        ):
            ctx.user(text)
            ask(stub, ctx)
        assert [message.text for message in ctx.messages()][1::2] == [
            "Noted.",
            "Noted.",
            "The code of the vault is KESTREL-4711.",
        ]
        ctx.user("喜欢哪个座位？")
        ask(stub, ctx)
        assert ctx.messages()[-1].text == "我喜欢靠窗的座位。"


def test_text_of_a_client_before_the_question_is_not_part_of_it() -> None:
    text = "<note>Use this context if the user asks, and do not answer this.</note>\nThe vault is red. Is it red?"
    assert quote_answer([Message(role="user", content=text)]).text == "The vault is red."


def test_a_call_is_run_and_its_result_is_sent_back(ask: Ask) -> None:
    def answer(messages: list[Message]) -> Message:
        if messages[-1].role == "tool":
            return Message(role="assistant", content=messages[-1].text)
        return Message(role="assistant", content="I look.", tool_calls=(ToolCall("c1", "find", '{"query": "vault"}'),))

    with StubProvider(answer) as stub, quire.open("memory:") as ctx:
        ctx.pages.create_detail_page("Vault", "", "It opens with KESTREL-4711.", "mem-0")
        ctx.user("Open the vault.")
        ask(stub, ctx)
        assert len(stub.requests) == 2
        assert "KESTREL-4711" in ctx.messages()[-1].text
