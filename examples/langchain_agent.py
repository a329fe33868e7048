"""Run a LangChain agent far beyond its budget: the model gets a view, the graph keeps every message."""

from tempfile import TemporaryDirectory

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from quire.adapters.langchain import QuireMiddleware


class Scripted(GenericFakeChatModel):
    """Replaces a real model: `model = "openai:gpt-5"` works as well."""

    def bind_tools(self, tools, **_):
        return self


def said():
    yield AIMessage("I will remember that.")
    yield from (AIMessage(f"Answer {n}: " + "and so on " * 30) for n in range(30))
    yield AIMessage("", tool_calls=[{"name": "find", "args": {"query": "code of the vault"}, "id": "1"}])
    yield AIMessage("It is KESTREL-4711.")


with TemporaryDirectory() as folder:
    middleware = QuireMiddleware(f"{folder}/agent.db", budget=1_000)
    agent = create_agent(Scripted(messages=said()), middleware=[middleware], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "support-42"}}

    agent.invoke({"messages": [HumanMessage("The code of the vault is KESTREL-4711.")]}, thread)
    for n in range(30):
        agent.invoke({"messages": [HumanMessage(f"Question {n}?")]}, thread)
    state = agent.invoke({"messages": [HumanMessage("What was the code?")]}, thread)
    print("The graph has", len(state["messages"]), "messages, the view", middleware.context("support-42").render())
    print("find:", state["messages"][-2].text.splitlines()[0])
    print("The model:", state["messages"][-1].text)
    middleware.close()
