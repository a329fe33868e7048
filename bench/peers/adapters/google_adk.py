"""Google ADK: sessions in SQLite through `DatabaseSessionService`, their most recent events, and its memory."""

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from google.adk.events import Event
from google.adk.flows.llm_flows.context._contents import _get_contents
from google.adk.memory._sqlite_memory_service import SqliteMemoryService
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, FunctionCall, FunctionResponse, Part

from bench.peers.peer import AwaitedPeer, Setting, call_of
from bench.traces import Values

_OWNER = {"app_name": "bench", "user_id": "user"}
_TIMES = (time.time() - 1e6 + number / 1_000 for number in itertools.count())
"""Events are ordered by time, so each gets its own."""


class Recent(AwaitedPeer):
    """`num_recent_events`, chosen from the budget; it counts events, not tokens.

    As in its runner, the session is read when a turn starts, and the events of the turn are added to it.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._service = DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{setting.folder}/adk.db")
        self._recent = GetSessionConfig(num_recent_events=setting.window)
        self._session = self._opened()

    def _opened(self) -> Any:
        where = {**_OWNER, "session_id": self.setting.session}
        found = self.wait(self._service.get_session(**where, config=self._recent))
        return found or self.wait(self._service.create_session(**where))

    def native(self, message: Values) -> Any:
        if message["role"] == "tool":
            answer = FunctionResponse(
                id=message["tool_call_id"], name=message.get("name") or "tool", response={"result": message["content"]}
            )
            return _event("agent", "user", [Part(function_response=answer)])
        calls = message.get("tool_calls") or ()
        parts = [Part(text=message["content"])] if message["content"] or not calls else []
        for call in calls:
            asked = call["function"]
            arguments = json.loads(asked["arguments"])
            parts.append(Part(function_call=FunctionCall(id=call["id"], name=asked["name"], args=arguments)))
        return _event("user", "user", parts) if message["role"] == "user" else _event("agent", "model", parts)

    def append(self, message: Any) -> None:
        if message.author == "user":
            self._session = self._opened()
        self.wait(self._service.append_event(self._session, message))

    def fill(self, messages: Sequence[Any]) -> None:
        """Insert rows into its table: its public interface takes one event at a time."""
        self.wait(self._insert(messages))
        self._session = self._opened()

    async def _insert(self, messages: Sequence[Any]) -> None:
        await self._service.prepare_tables()
        row = self._service._get_schema_classes().StorageEvent
        async with self._service.database_session_factory() as rows:
            rows.add_all([row.from_event(self._session, message) for message in messages])
            await rows.commit()

    def render(self) -> Any:
        return _get_contents(None, self._session.events, "agent", preserve_function_call_ids=True)

    def chat(self, rendered: Any) -> list[Values]:
        return [self.setting.system, *map(_message, rendered)]

    def switch(self, session: str) -> Self:
        self.setting = replace(self.setting, session=session)
        self._session = self._opened()
        return self

    def stored(self) -> int:
        return len(self.wait(self._service.get_session(**_OWNER, session_id=self.setting.session)).events)

    def close(self) -> None:
        self.wait(self._service.close())


class MemorySearch(AwaitedPeer):
    """`SqliteMemoryService.search_memory`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Setting(folder, "texts", 8_000, "", 1))
        self._memory = SqliteMemoryService(str(folder / "memory.db"))

    def append(self, message: Any) -> None:
        self.wait(self._memory.add_events_to_memory(**_OWNER, events=message, session_id="texts"))

    def render(self) -> Any:
        raise NotImplementedError

    def take(self, texts: Sequence[str]) -> None:
        for first in range(0, len(texts), 5_000):
            part = texts[first : first + 5_000]
            self.append([_event("user", "user", [Part(text=text)], f"e{first + at}") for at, text in enumerate(part)])

    def find(self, query: str) -> list[str]:
        found = self.wait(self._memory.search_memory(**_OWNER, query=query)).memories
        return [memory.content.parts[0].text for memory in found[:10]]


def _event(author: str, role: str, parts: list[Any], identity: str = "") -> Any:
    event = Event(author=author, timestamp=next(_TIMES), content=Content(role=role, parts=parts))
    if identity:
        event.id = identity
    return event


def _message(content: Any) -> Values:
    found: Values = {"role": "user" if content.role == "user" else "assistant", "content": ""}
    for part in content.parts:
        if answer := part.function_response:
            return {"role": "tool", "tool_call_id": answer.id, "content": answer.response["result"]}
        if asked := part.function_call:
            arguments = json.dumps(asked.args, separators=(",", ":"))
            found.setdefault("tool_calls", []).append(call_of(asked.name, asked.id, arguments))
        else:
            found["content"] += part.text or ""
    return found
