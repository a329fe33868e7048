"""OpenAI Agents SDK: a session in SQLite. Its limit counts items, not tokens; without a limit it returns everything.

As in its runner, the session is read when a turn starts and unpaired calls are dropped; the items of the turn are added
to it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.extensions.memory import AdvancedSQLiteSession
from agents.memory import SessionSettings, SQLiteSession
from agents.run_internal.session_persistence import prepare_input_with_session

from bench.peers.peer import AwaitedPeer, Setting, call_of
from bench.traces import Values


class Limited(AwaitedPeer):
    """A session with a limit."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._session = SQLiteSession(setting.session, setting.folder / "agents.db")
        self._settings = SessionSettings(limit=self.limit())
        self._list: list[Any] | None = None

    def limit(self) -> int | None:
        """The number of items that the session returns."""
        return self.setting.window

    def native(self, message: Values) -> list[Any]:
        """Return items of the Responses API: text and calls are separate items."""
        if message["role"] == "tool":
            answer = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            return [{**answer, "output": message["content"]}]
        calls = message.get("tool_calls") or ()
        text = [{"role": message["role"], "content": message["content"]}] if message["content"] or not calls else []
        return [*text, *({"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls)]

    def append(self, message: list[Any]) -> None:
        if message[0].get("role") == "user":
            self._list = self._begun(message)
        elif self._list is not None:
            self._list += message
        self.wait(self._session.add_items(message))

    def fill(self, messages: Sequence[list[Any]]) -> None:
        self.wait(self._session.add_items([item for message in messages for item in message]))
        self._list = None

    def render(self) -> Any:
        if self._list is None:
            self._list = self._begun([])
        return list(self._list)

    def _begun(self, asked: list[Any]) -> list[Any]:
        """Return the items that the runner sends when a turn starts."""
        sent, _ = self.wait(prepare_input_with_session(asked, self._session, None, self._settings))
        return list(sent)

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
    """A session without a limit."""

    def limit(self) -> int | None:
        return None


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
