"""Use quire as LangGraph's long-term store: overwritten values can be restored, and a search finds them by words."""

from tempfile import TemporaryDirectory

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from quire.adapters.langgraph import QuireStore


class State(TypedDict):
    said: str
    known: list[str]


def remember(state: State, runtime: Runtime) -> dict[str, list[str]]:
    """Store the user's message, and look up earlier items about it."""
    memories = ("users", "ann", "memories")
    found = runtime.store.search(memories, query=state["said"], limit=2)
    runtime.store.put(memories, state["said"][:40], {"text": state["said"]})
    return {"known": [item.value["text"] for item in found if item.score is not None]}


with TemporaryDirectory() as folder, QuireStore(f"{folder}/memory.db") as store:
    graph = StateGraph(State).add_node(remember).add_edge(START, "remember").compile(store=store)
    for said in ("I drink green tea", "我的猫叫小花", "My flight is HAT136", "Which tea do I drink?", "小花是谁"):
        print(said, "→", graph.invoke({"said": said, "known": []})["known"])

    store.put(("users", "ann"), "theme", {"color": "dark"})
    store.put(("users", "ann"), "theme", {"color": "light"})
    store.ctx.undo(store.ctx.seq)
    print("after undo:", store.get(("users", "ann"), "theme").value)
