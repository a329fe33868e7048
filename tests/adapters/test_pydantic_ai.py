"""pydantic-ai: an agent works far beyond its budget, and its history stays complete."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")
from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

import quire
from quire.adapters.pydantic_ai import QuireCapability, QuireToolset, parse

pytestmark = pytest.mark.clients

BUDGET = 1_500
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89"


class Scripted:
    """Makes a lookup for every question, then answers; records its input."""

    def __init__(self) -> None:
        self.sent: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(list(messages))
        self.infos.append(info)
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"It says: {last.model_response_str()[:40]}")])
        assert isinstance(last, UserPromptPart)
        name, _, what = str(last.content).partition(" ")
        arguments = {"find": {"query": what}, "read_page": {"index": what}}.get(name, {"what": str(last.content)})
        called = name if name in ("find", "read_page") else "look"
        thought = ThinkingPart("hm", signature="c2ln", provider_name="anthropic")
        return ModelResponse(parts=[thought, ToolCallPart(called, arguments, f"call-{last.content}"[:30])])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for part in self.answer(messages, info).parts:
            if isinstance(part, TextPart):
                yield part.content
            elif isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}


def agent_of(model: FunctionModel, *capabilities: QuireCapability, **options: Any) -> Agent[None, str]:
    agent = Agent(model, capabilities=list(capabilities), **options)

    @agent.tool_plain
    def look(what: str) -> str:
        """Look something up."""
        return f"{what} 的记录: " + "something long about it, " * 12

    return agent


def question(n: int) -> str:
    return f"{n}: what about item {n}?" + (" The code of the vault is KESTREL-4711." if n == 2 else "")


def as_openai(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return a model's input in OpenAI's form, made by pydantic-ai's own code."""
    found: list[dict[str, Any]] = []
    for message in messages:
        for said in parse(message):
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in said.tool_calls
            ]
            value: dict[str, Any] = {"role": said.role, "content": said.text or None}
            if calls:
                value["tool_calls"] = calls
            if said.role == "tool":
                value["tool_call_id"] = said.tool_call_id
            found.append(value)
    return found


def problems(messages: Sequence[ModelMessage]) -> list[object]:
    wrong: list[object] = list(quire.check_legal(as_openai(messages), "openai"))
    return wrong if isinstance(messages[-1], ModelRequest) else [*wrong, messages[-1]]


def tokens(messages: Sequence[ModelMessage]) -> int:
    ctx = quire.open(quire.MemoryStorage(), budget=10_000_000, preamble="")
    ctx.import_messages(as_openai(messages))
    return ctx.render(preview=True).tokens


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    return [said.text for message in messages for said in parse(message)]


def ask(agent: Agent[None, Any], prompt: str | None = None, **options: Any) -> AgentRunResult[Any]:
    return asyncio.run(agent.run(prompt, **options))


async def talk(agent: Agent[None, str], count: int, **options: Any) -> list[ModelMessage]:
    history: list[ModelMessage] = []
    for n in range(count):
        history = (await agent.run(question(n), message_history=history, **options)).all_messages()
    return history


def test_many_turns_far_past_the_budget(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    turns = 205 if request.config.getoption("--long") else 30
    script = Scripted()
    quiring = QuireCapability(tmp_path / "a.db", budget=BUDGET)
    agent = agent_of(script.model, quiring, instructions="You look things up.")
    history = asyncio.run(talk(agent, turns, conversation_id="42"))
    assert len(history) == 4 * turns
    assert len(script.sent) == 2 * turns
    assert all(problems(sent) == [] for sent in script.sent)
    assert max(map(tokens, script.sent[::9])) <= BUDGET
    assert {info.instructions for info in script.infos} == {"You look things up."}
    ctx = quiring.context("42")
    assert [message.text for message in ctx.messages()][1:] == texts(history)
    assert ctx.check() == []
    answer = ask(agent, "find vault code", message_history=history)
    found = [part for message in answer.new_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert "KESTREL-4711" in found[0].model_response_str()
    quiring.close()


def test_requests_and_responses_are_the_runs_own_where_they_are_whole() -> None:
    script, ctx = Scripted(), quire.open(quire.MemoryStorage())
    agent = agent_of(script.model, QuireCapability(ctx), system_prompt="Be kind.")
    history = asyncio.run(talk(agent, 2))
    *_, sent = script.sent
    assert sent[0].parts[0] == history[0].parts[0]
    assert isinstance(sent[0].parts[0], SystemPromptPart)
    assert sent[-3:] == history[-4:-1]
    assert sent[-2] is history[-3]
    assert any(isinstance(part, ThinkingPart) for part in sent[-2].parts)


def test_a_response_without_its_thinking_keeps_its_other_parts() -> None:
    script, ctx = Scripted(), quire.open(quire.MemoryStorage())
    agent = agent_of(script.model, QuireCapability(ctx, tools=False))
    thought = ThinkingPart("hm", signature="c2ln", provider_name="openai", id="rs_1")
    drawn = FilePart(BinaryContent(PNG, media_type="image/png"))
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("draw")]),
        ModelResponse(parts=[thought, TextPart("Here.", id="msg_1", provider_name="openai"), drawn]),
    ]
    ask(agent, "more", message_history=history)  # quire did not see the request that the response answers
    [response] = [message for message in script.sent[0] if isinstance(message, ModelResponse)]
    assert response.parts == [TextPart("Here.", provider_name="openai"), drawn]
    assert history[1].parts[0] is thought
    stored = ctx.messages()[1].content
    assert isinstance(stored, list)
    assert stored[0] == {"type": "thinking", "text": "hm", "signature": "c2ln"}


def test_a_clipped_result_is_still_the_result_of_its_call() -> None:
    script, ctx = Scripted(), quire.open(quire.MemoryStorage(), budget=1_200)
    agent = agent_of(script.model, QuireCapability(ctx, tools=False))
    picture = ImageUrl("https://example.org/a.png")
    returned = ToolReturnPart("look", "much " * 5_000, "1")
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["go", picture])]),
        ModelResponse(parts=[ToolCallPart("look", {}, "1")]),
        ModelRequest(parts=[returned]),
    ]
    ask(agent, message_history=history)
    clipped = script.sent[0][-1].parts[-1]
    assert isinstance(clipped, ToolReturnPart)
    assert (clipped.tool_name, clipped.tool_call_id) == ("look", "1")
    assert len(clipped.model_response_str()) < 6_000
    assert problems(script.sent[0]) == []
    assert tokens(script.sent[0]) <= 1_200
    assert returned.content == "much " * 5_000


@pytest.mark.parametrize("sent", ['{"query": "座', "vault", "[1]", '"x"', "null", "NaN", "{" * 500])
def test_arguments_that_are_no_object_are_answered_however_often(sent: str) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        calls = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[ToolCallPart("find", sent, f"c{calls}") if calls < 4 else TextPart("I give up.")])

    ctx = quire.open(quire.MemoryStorage())
    for options in ({"toolsets": [QuireToolset(ctx)]}, {"capabilities": [QuireCapability(ctx)]}):
        result = ask(Agent(FunctionModel(answer), **options), "Look!")
        parts = [part for message in result.all_messages() for part in message.parts]
        told = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
        assert [text.partition(": ")[0] for text in told] == ["InvalidValue"] * 4


def test_streaming_and_a_history_that_was_stored(tmp_path: Path) -> None:
    script = Scripted()
    agent = agent_of(script.model, QuireCapability(quire.MemoryStorage(), budget=BUDGET))

    async def stream() -> list[ModelMessage]:
        history: list[ModelMessage] = []
        for n in range(20):
            async with agent.run_stream(question(n), message_history=history, conversation_id="c") as result:
                assert (await result.get_output()).startswith("It says")
            history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
        return history

    assert len(asyncio.run(stream())) == 80
    assert all(problems(sent) == [] for sent in script.sent)
    assert max(map(tokens, script.sent[-4:])) <= BUDGET


def test_another_branch_is_followed_and_nothing_is_lost() -> None:
    script, ctx = Scripted(), quire.open(quire.MemoryStorage())
    agent = agent_of(script.model, QuireCapability(ctx))
    history = asyncio.run(talk(agent, 3))
    other = ask(agent, "another way", message_history=history[:4]).all_messages()
    assert [message.text for message in ctx.messages()] == texts(other)
    assert any("item 2" in message.text for message in ctx.messages(all=True))
    assert "item 2" not in str(script.sent[-1])


def test_structured_output_pairs_its_calls() -> None:
    sent: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(messages)
        [tool] = info.output_tools
        return ModelResponse(parts=[ToolCallPart(tool.name, {"response": len(sent)})])

    agent = Agent(
        FunctionModel(answer), output_type=int, capabilities=[QuireCapability(quire.MemoryStorage(), budget=900)]
    )
    history: list[ModelMessage] = []
    for n in range(30):
        result = ask(agent, f"{n} " + "words " * 60, message_history=history, conversation_id="c")
        history = result.all_messages()
    assert result.output == 30
    assert all(problems(one) == [] and tokens(one) <= 900 for one in sent)
