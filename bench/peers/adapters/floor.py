"""The raw floor: INSERT and commit, then the newest messages that fit, from counts in a list."""

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import Peer, Setting
from bench.traces import COUNT, Values, cost

_TABLE = "CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, session TEXT, tokens INT, body TEXT)"
_INDEX = "CREATE INDEX IF NOT EXISTS by_session ON message (session, id)"
_NEWEST = "SELECT tokens, body FROM message WHERE session = ? ORDER BY id DESC"


class Floor(Peer):
    """The least work of a durable turn. The list is trimmed exactly and starts with the user."""

    synchronous = "NORMAL"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._db = sqlite3.connect(setting.folder / "floor.db", timeout=30, isolation_level=None)
        self._journal()
        self._db.execute(f"PRAGMA synchronous = {self.synchronous}")
        self._db.execute(_TABLE)
        self._db.execute(_INDEX)
        self._room = setting.room
        self._messages: list[Values] = []
        self._sizes: list[int] = []
        self._load()

    def _journal(self) -> None:
        """Create the tables. If two processes create the store at once, SQLite reports a lock to one of them without
        waiting.
        """
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                time.sleep(0.01)
            else:
                return

    def _load(self) -> None:
        used = 0
        for size, body in self._db.execute(_NEWEST, (self.setting.session,)):
            used += size
            if used > self._room:
                break
            self._sizes.insert(0, size)
            self._messages.insert(0, json.loads(body))

    def append(self, message: Values) -> None:
        size = cost(message, COUNT)  # counted here, even if another part of this process counted it before
        row = (self.setting.session, size, json.dumps(message))
        self._db.execute("INSERT INTO message (session, tokens, body) VALUES (?, ?, ?)", row)
        self._messages.append(message)
        self._sizes.append(size)

    def fill(self, messages: Sequence[Values]) -> None:
        self._db.execute("BEGIN")
        super().fill(messages)
        self._db.execute("COMMIT")

    def render(self) -> list[Values]:
        used, first = 0, len(self._messages)
        while first and used + self._sizes[first - 1] <= self._room:
            first -= 1
            used += self._sizes[first]
        while first < len(self._messages) and self._messages[first]["role"] != "user":
            first += 1
        return [self.setting.system, *self._messages[first:]]

    def stored(self) -> int:
        counted = self._db.execute("SELECT count(*) FROM message WHERE session = ?", (self.setting.session,))
        return int(counted.fetchone()[0])

    def close(self) -> None:
        self._db.close()


class SyncedFloor(Floor):
    """The same, synced to disk before it returns."""

    synchronous = "FULL"


class WordIndex:
    """A bare FTS5 table of words."""

    tokenizer = "unicode61"

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "fts.db")

    def take(self, texts: Sequence[str]) -> None:
        self._db.execute(f"CREATE VIRTUAL TABLE text USING fts5(body, tokenize = '{self.tokenizer}')")
        self._db.executemany("INSERT INTO text VALUES (?)", ((text,) for text in texts))
        self._db.commit()

    def find(self, query: str) -> list[str]:
        match = " ".join(f'"{word}"' for word in query.split())
        rows = self._db.execute("SELECT body FROM text WHERE text MATCH ? ORDER BY rank LIMIT 10", (match,))
        return [body for (body,) in rows]


class TrigramIndex(WordIndex):
    """A bare FTS5 table of trigrams."""

    tokenizer = "trigram"
