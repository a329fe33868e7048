"""LangGraph: a graph with a SQLite checkpointer is invoked for every message; its node trims as LangChain does."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Self, TypedDict

from langchain_core.messages import convert_to_messages
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from bench.peers.adapters.langchain import Trimmed
from bench.peers.peer import Setting


class State(TypedDict):
    """The state in the checkpoints."""

    messages: Annotated[list[Any], add_messages]


class Graph(Trimmed):
    """One node, which builds the list for a model call."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._db = sqlite3.connect(setting.folder / "langgraph.db", check_same_thread=False)
        graph: Any = StateGraph(State)
        graph.add_node("model", self._model)
        graph.add_edge(START, "model")
        graph.add_edge("model", END)
        self._graph = graph.compile(checkpointer=SqliteSaver(self._db))
        self._system = convert_to_messages([setting.system])
        self._list: Any = None

    @property
    def _thread(self) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.setting.session}}

    def _model(self, state: State) -> dict[str, Any]:
        self._list = self.trim(self._system + state["messages"])
        return {}

    def append(self, message: Any) -> None:
        self._graph.invoke({"messages": [message]}, self._thread)

    def fill(self, messages: Sequence[Any]) -> None:
        self._graph.invoke({"messages": list(messages)}, self._thread)

    def render(self) -> Any:
        if self._list is None:
            self._list = self.trim(self._system + self._kept())
        return self._list

    def switch(self, session: str) -> Self:
        self.setting, self._list = replace(self.setting, session=session), None
        return self

    def stored(self) -> int:
        return len(self._kept())

    def _kept(self) -> list[Any]:
        return list(self._graph.get_state(self._thread).values.get("messages", []))

    def close(self) -> None:
        self._db.close()
