"""Run a pydantic-ai agent far beyond its budget: the model gets a view, the history stays complete."""

import asyncio
from tempfile import TemporaryDirectory

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from quire.adapters.pydantic_ai import QuireCapability


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Replaces a real model: `Agent("openai:gpt-5", …)` works as well."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart("I found: " + last.model_response_str().splitlines()[0])])
    if "What was" in last.content:
        return ModelResponse(parts=[ToolCallPart("find", {"query": "code of the vault"})])
    return ModelResponse(parts=[TextPart("I see. " + "And so on. " * 30)])


async def main(folder: str) -> None:
    capability = QuireCapability(f"{folder}/agent.db", budget=1_000)
    agent = Agent(FunctionModel(script), capabilities=[capability], instructions="Answer briefly.")
    result = await agent.run("The code of the vault is KESTREL-4711.", conversation_id="support-42")
    for n in range(30):
        result = await agent.run(f"Question {n}?", message_history=result.all_messages())
    result = await agent.run("What was the code?", message_history=result.all_messages())
    print(
        "The history has", len(result.all_messages()), "messages, the view", capability.context("support-42").render()
    )
    print(result.output)
    capability.close()


with TemporaryDirectory() as folder:
    asyncio.run(main(folder))
