"""Kill a writing process again and again, and check the store after each kill. `test_kill.py` runs it as a program.

The program has no threads, so it can fork. Each child opens the store, writes, and acknowledges every commit through a
pipe until it is killed. Then the parent opens the store and compares. The program prints its results as JSON.
"""

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import quire
from quire import Context, InvalidOperation, ToolCall, open_storage
from tests.mortal import Tell, killed

SIZES = (0, 7, 300, 1_000, 5_000, 60_000, 400_000)
ROUNDS_A_STORE = 12
LONGEST_LIFE = 0.03


class QuickCounter:
    """Count characters, so that the writer spends its time on writing."""

    name = "characters"
    exact = True

    def count(self, text: str) -> int:
        return len(text)


def text_of(seq: int) -> str:
    """Return the text of the page that entry `seq` creates: of any length, and unique."""
    size = Random(seq).choice(SIZES)
    return (f"{seq} 页 " * (size // 4 + 1))[:size]


def words_of(seq: int) -> str:
    """Return the text of the message that entry `seq` adds; it starts with its seq."""
    return f"{seq} " + "词 and a word " * Random(seq).choice((0, 1, 20, 400))


def open_book(url: str, durability: Any) -> Context:
    return quire.open(open_storage(url, durability=durability), "book", counter=QuickCounter())


def write_on(url: str, durability: str, seed: int, tell: Tell) -> None:
    """Run the child: change something and acknowledge it, without end."""
    random = Random(seed)
    book = open_book(url, durability)
    pages = book.pages
    known = [page.index for page in pages.list_pages("mem")]
    while True:
        seq = pages.seq + 1
        if len(known) < 6 or random.random() < 0.4:
            index = pages.create_detail_page(f"page {seq}", "", text_of(seq), "mem-0")
            known.append(index)
            tell(f"{seq} {index}")
        elif random.random() < 0.5:
            tell(f"{seq} {speak(book, random, seq)}")
        else:
            change(pages, random, known) if random.random() < 0.5 else edit(book, random)
            tell(f"{pages.seq} -")


def change(pages: quire.ContextSystem, random: Random, known: list[str]) -> None:
    """Make a change that creates nothing: one commit, or none if it has no effect."""
    index, other = random.sample(known[1:], 2)
    match random.randrange(5):
        case 0:
            pages.hide(index)
        case 1:
            pages.expand(index)
        case 2:
            pages.update_page(index, description=str(random.random()))
        case 3:
            pages.move_page(index, "mem-0", before=other)
        case _:
            pages.update_page(index, meta={"n": random.random()})
            pages.undo(pages.seq)


def speak(book: Context, random: Random, seq: int) -> int:
    """Add a message of any kind; return its index."""
    waiting = book.pending_calls()
    if waiting and random.random() < 0.7:
        return book.tool_result(waiting[0].id, words_of(seq))
    match random.randrange(3):
        case 0:
            return book.user(words_of(seq))
        case 1:
            return book.assistant(words_of(seq))
        case _:
            return book.assistant(words_of(seq), [ToolCall(f"call {seq}", "look")])


def edit(book: Context, random: Random) -> None:
    """Edit the conversation: one commit or two, or none if the edit is refused."""
    count = len(book.messages(all=True))
    if not count:
        return
    index = random.randrange(count)
    try:
        match random.randrange(4):
            case 0:
                book.conversation.delete(index)
            case 1:
                book.conversation.compress([index, max(index - 1, 0)])
            case 2:
                book.conversation.batch_start()
                book.conversation.batch_end(0)
            case _:
                if book.conversation.delete(index).covered:
                    book.undo(book.seq)
    except InvalidOperation:  # it waits for a result, or is not in the conversation any more
        pass


class Killing:
    """One run: the number of killed children, and their acknowledged commits."""

    def __init__(self, kind: str, folder: Path, durability: str, seed: int) -> None:
        self.kind = kind
        self.folder = folder
        self.durability = durability
        self.random = Random(seed)
        self.kills = 0
        self.acknowledged = 0
        self.unheard = 0
        self._stores = 0
        self._renew()

    def run(self, kills: int) -> None:
        while self.kills < kills:
            if self.kills and self.kills % ROUNDS_A_STORE == 0:
                shutil.rmtree(self.path.parent)
                self._renew()
            self._take(self._killed())
            self._compare()

    def _renew(self) -> None:
        self._stores += 1
        self.path = self.folder / str(self._stores) / "store"
        self.path.parent.mkdir()
        self.url = f"{self.kind}:{self.path}"
        self.promised: dict[str, int] = {}
        self.spoken: dict[int, int] = {}
        self.seq = 0

    def _killed(self) -> list[str]:
        """Let a child write for a moment, kill it, and return its acknowledged commits."""
        work = partial(write_on, self.url, self.durability, self.random.getrandbits(32))
        patience = (
            None if self.kills % 2 else 0
        )  # kill one at any moment, also while it opens; kill the next while it writes
        self.kills += 1
        return killed(work, self.random.uniform(0, LONGEST_LIFE), patience)

    def _take(self, heard: list[str]) -> None:
        for line in heard:
            seq, index = line.split(" ")
            self.seq = int(seq)
            self.acknowledged += 1
            if index.isdecimal():
                self.spoken[int(index)] = self.seq
            elif index != "-":
                self.promised[index] = self.seq

    def _compare(self) -> None:
        """Open the store and check it: every acknowledged commit is there, nothing is torn, nothing is added."""
        book = open_book(self.url, self.durability)
        pages = book.pages
        ahead = pages.seq - self.seq
        assert 0 <= ahead <= 2, f"acknowledged up to {self.seq}, found {pages.seq}"  # some changes are two commits
        self.unheard += ahead > 0
        self.seq = pages.seq
        assert pages.check() == [], pages.check()
        found = {page.index: page.created_seq for page in pages.list_pages("mem") if page.parent}
        lost = self.promised.keys() - found.keys()
        assert not lost, f"lost: {sorted(lost)}"
        assert self.promised.items() <= found.items()
        for index, seq in found.items():
            assert pages.detail(index) == text_of(seq), f"{index} is torn"
            if self.kind == "file" and text_of(seq):
                readable = self.path / "book" / "pages" / "mem" / f"{index}.txt"
                assert readable.read_text() == text_of(seq), f"{readable} is torn"
        self.promised = found
        said = {message.index: message.text for message in book.messages(all=True)}
        heard = {index: int(text.split(" ", 1)[0]) for index, text in said.items()}
        assert self.spoken.items() <= heard.items(), "a message is lost"
        assert all(said[index] == words_of(seq) for index, seq in heard.items()), "a message is torn"
        self.spoken = heard
        pages.storage.close()


def main(kind: str, folder: str, durability: str, kills: str, seed: str) -> None:
    killing = Killing(kind, Path(folder), durability, int(seed))
    killing.run(int(kills))
    done = {"kills": killing.kills, "acknowledged": killing.acknowledged, "unheard": killing.unheard}
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
