"""The OpenAI Agents SDK: a session in SQLite. It knows no tokens: its limit counts items; without one it gives all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.extensions.memory import AdvancedSQLiteSession
from agents.memory import SQLiteSession

from bench.peers.peer import AwaitedPeer, Setting, call_of
from bench.traces import Values


class Limited(AwaitedPeer):
    """`get_items` with a limit."""

    limit: int | None

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._session = SQLiteSession(setting.session, setting.folder / "agents.db")
        self.limit = setting.window

    def native(self, message: Values) -> list[Any]:
        """Items of the Responses API: text and calls are items of their own."""
        if message["role"] == "tool":
            answer = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            return [{**answer, "output": message["content"]}]
        calls = message.get("tool_calls") or ()
        text = [{"role": message["role"], "content": message["content"]}] if message["content"] or not calls else []
        return [*text, *({"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls)]

    def append(self, message: list[Any]) -> None:
        self.wait(self._session.add_items(message))

    def fill(self, messages: Sequence[list[Any]]) -> None:
        self.append([item for message in messages for item in message])

    def render(self) -> Any:
        return self.wait(self._session.get_items(limit=self.limit))

    def chat(self, rendered: Any) -> list[Values]:
        found = [self.setting.system]
        for item in rendered:
            kind = item.get("type")
            if kind == "function_call":
                if found[-1]["role"] != "assistant":
                    found.append({"role": "assistant", "content": ""})
                call = call_of(item["name"], item["call_id"], item["arguments"])
                found[-1].setdefault("tool_calls", []).append(call)
            elif kind == "function_call_output":
                found.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
            else:
                found.append({"role": item["role"], "content": item["content"]})
        return found

    def records(self, message: list[Any]) -> int:
        return len(message)

    def stored(self) -> int:
        return len(self.wait(self._session.get_items()))

    def close(self) -> None:
        self._session.close()


class Whole(Limited):
    """`get_items` as the SDK's runner calls it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.limit = None


class TurnSearch(AwaitedPeer):
    """`AdvancedSQLiteSession.find_turns_by_content`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Setting(folder, "texts", 8_000, "", 1))
        self._session = AdvancedSQLiteSession(session_id="texts", db_path=folder / "agents.db", create_tables=True)

    def append(self, message: Any) -> None:
        self.wait(self._session.add_items(message))

    def render(self) -> Any:
        return self.wait(self._session.get_items())

    def take(self, texts: Sequence[str]) -> None:
        for first in range(0, len(texts), 5_000):
            self.append([{"role": "user", "content": text} for text in texts[first : first + 5_000]])

    def find(self, query: str) -> list[str]:
        return [str(turn["content"]) for turn in self.wait(self._session.find_turns_by_content(query))[:10]]
