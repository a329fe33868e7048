"""Run an agent of the OpenAI Agents SDK far beyond its budget: the session keeps all items, the model gets a view."""

import asyncio
from tempfile import TemporaryDirectory

from agents import Agent, Runner
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from quire.adapters.openai_agents import QuireSession


def answer(call):
    """Replaces a real model: Agent(model="gpt-5") works as well."""
    last = str(call.input[-1])
    if "What was the code" in last:
        return [function_call("find", {"query": "code of the vault"}, call_id="call-1")]
    if "function_call_output" in last:
        return [assistant_message("It is KESTREL-4711.", item_id="msg-last")]
    return [assistant_message("And so on. " * 30, item_id=f"msg-{len(model.calls)}")]


model = ScriptedModel([ModelStep.respond(answer)] * 40)


async def main(folder: str) -> None:
    session = QuireSession("support-42", f"{folder}/agents.db", budget=1_500)
    agent = Agent(name="Clerk", instructions="Be brief.", model=model, tools=session.tools("find", "read_page"))
    config = session.run_config(tracing_disabled=True)
    told = ["The code of the vault is KESTREL-4711.", *(f"Question {n}?" for n in range(30)), "What was the code?"]
    for text in told:
        result = await Runner.run(agent, text, session=session, run_config=config)
    print(len(session.context.messages()), "messages are stored; the model got", session.context.render())
    print("The model:", result.final_output)
    session.close()


with TemporaryDirectory() as folder:
    asyncio.run(main(folder))
