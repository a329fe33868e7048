"""LlamaIndex: `Memory` over a SQLite chat store, and `ChatMemoryBuffer` in memory; both with the exact tokenizer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from bench.peers.accounting import encode
from bench.peers.peer import AwaitedPeer, Setting
from bench.traces import Values

_BESIDE = ("tool_calls", "tool_call_id", "name")
_encode_once = cache(encode)


class _Chat(AwaitedPeer):
    """The message conversion of both."""

    def native(self, message: Values) -> Any:
        beside = {field: message[field] for field in _BESIDE if message.get(field)}
        return ChatMessage(role=message["role"], content=message["content"], additional_kwargs=beside)

    def chat(self, rendered: Any) -> list[Values]:
        found = [self.setting.system]
        for message in rendered:
            beside = {field: value for field, value in message.additional_kwargs.items() if field != "name"}
            found.append({"role": message.role.value, "content": message.content or "", **beside})
        return found


class Stored(_Chat):
    """`Memory`; the history gets all of the room (70 % by default)."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        address = f"sqlite+aiosqlite:///{setting.folder}/llama.db"
        self._store = SQLAlchemyChatStore(table_name="memory", async_database_uri=address)
        self._memory = self._opened()

    def _opened(self) -> Any:
        return Memory.from_defaults(
            session_id=self.setting.session,
            token_limit=self.setting.room,
            tokenizer_fn=_encode_once,
            chat_store=self._store,
            chat_history_token_ratio=1.0,
            token_flush_size=max(1, self.setting.room // 10),
        )

    def append(self, message: Any) -> None:
        self.wait(self._memory.aput(message))

    def fill(self, messages: Sequence[Any]) -> None:
        self.wait(self._memory.aput_messages(list(messages)))

    def render(self) -> Any:
        return self.wait(self._memory.aget())

    def switch(self, session: str) -> Self:
        self.setting = replace(self.setting, session=session)
        self._memory = self._opened()
        return self

    def stored(self) -> int:
        return len(self.wait(self._memory.sql_store.get_messages(self.setting.session, status=None)))


class Buffer(_Chat):
    """`ChatMemoryBuffer`. It counts the joined history, so counts cannot be cached."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._memory = ChatMemoryBuffer.from_defaults(token_limit=setting.room, tokenizer_fn=encode)

    def append(self, message: Any) -> None:
        self._memory.put(message)

    def render(self) -> Any:
        return self._memory.get()
