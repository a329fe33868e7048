"""quire through its public names, as used with `quire.open`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import quire
from bench.peers.peer import Peer, Setting
from bench.traces import Values


class Quire(Peer):
    """A context in one SQLite file, or a library for many sessions."""

    durability: ClassVar[Literal["normal", "full"]] = "normal"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._file = setting.folder / "quire.db"
        self._library: quire.Library | None = None
        self._ctx = quire.open(self._file, setting.session, budget=setting.budget, durability=self.durability)
        self._ctx.system(setting.prompt)

    def append(self, message: Values) -> None:
        self._ctx.add(message)

    def append_shared(self, message: Values) -> None:
        with self._ctx.turn():
            self._ctx.add(message)

    def fill(self, messages: Sequence[Values]) -> None:
        self._ctx.import_messages(messages)

    def render(self) -> list[Values]:
        return self._ctx.render().openai()

    def switch(self, session: str) -> Self:
        self._ctx.close()
        if self._library is None:
            self._library = quire.Library(self._file, durability=self.durability)
        self.setting = replace(self.setting, session=session)
        self._ctx = self._library.open(session, budget=self.setting.budget)
        self._ctx.system(self.setting.prompt)
        return self

    def stored(self) -> int:
        return sum(message.role != "system" for message in self._ctx.messages(all=True))

    def close(self) -> None:
        self._ctx.close()
        if self._library is not None:
            self._library.close()


class SyncedQuire(Quire):
    """The same, synced to disk before `add` returns."""

    durability = "full"


class QuireSearch:
    """Texts as messages of one context, searched with `find`."""

    def __init__(self, folder: Path) -> None:
        self._ctx = quire.open(folder / "quire.db", "texts")

    def take(self, texts: Sequence[str]) -> None:
        self._ctx.import_messages({"role": "user", "content": text} for text in texts)
        self._ctx.find("ready")  # the index is updated by the first query

    def find(self, query: str) -> list[str]:
        return [self._ctx.pages.detail(hit.index) for hit in self._ctx.find(query, limit=10)]
