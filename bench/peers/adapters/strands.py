"""Strands: an agent with a session in files, one per message, and a sliding window that counts messages."""

import json
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from bench.peers.peer import Peer, Setting, call_of
from bench.traces import Values


class _Silent(Model):  # type: ignore[misc]
    """A model that is never called."""

    def update_config(self, **settings: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *asked: Any, **settings: Any) -> Any:
        raise NotImplementedError

    def stream(self, *asked: Any, **settings: Any) -> Any:
        raise NotImplementedError


class Sliding(Peer):
    """Do what the agent's loop does with every message, and at the end of a turn; within a turn nothing is cut."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._window = SlidingWindowConversationManager(window_size=setting.window)
        self._session = FileSessionManager(session_id=setting.session, storage_dir=str(setting.folder))
        self._agent = Agent(
            model=_Silent(),
            system_prompt=setting.prompt,
            session_manager=self._session,
            agent_id="agent",
            conversation_manager=self._window,
            callback_handler=None,
        )

    def native(self, message: Values) -> Any:
        if message["role"] == "tool":
            answer = {"status": "success", "content": [{"text": message["content"]}]}
            return {"role": "user", "content": [{"toolResult": {"toolUseId": message["tool_call_id"], **answer}}]}
        calls = message.get("tool_calls") or ()
        blocks: list[Any] = [{"text": message["content"]}] if message["content"] or not calls else []
        for call in calls:
            asked = call["function"]
            use = {"toolUseId": call["id"], "name": asked["name"], "input": json.loads(asked["arguments"])}
            blocks.append({"toolUse": use})
        return {"role": message["role"], "content": blocks}

    def append(self, message: Any) -> None:
        self._agent.messages.append(message)
        self._session.append_message(message, self._agent)
        if message["role"] == "assistant" and not any("toolUse" in block for block in message["content"]):
            self._window.apply_management(self._agent)
            self._session.sync_agent(self._agent)

    def render(self) -> Any:
        return list(self._agent.messages)

    def chat(self, rendered: Any) -> list[Values]:
        return [self.setting.system, *map(_message, rendered)]

    def stored(self) -> int:
        folder = self.setting.folder / f"session_{self.setting.session}" / "agents" / "agent_agent" / "messages"
        return sum(1 for _ in folder.glob("*.json"))


def _message(message: Any) -> Values:
    found: Values = {"role": message["role"], "content": ""}
    for block in message["content"]:
        if answer := block.get("toolResult"):
            text = "".join(part.get("text", "") for part in answer["content"])
            return {"role": "tool", "tool_call_id": answer["toolUseId"], "content": text}
        if use := block.get("toolUse"):
            arguments = json.dumps(use["input"], separators=(",", ":"))
            found.setdefault("tool_calls", []).append(call_of(use["name"], use["toolUseId"], arguments))
        else:
            found["content"] += block["text"]
    return found
