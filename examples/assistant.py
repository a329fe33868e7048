"""Run an assistant over thousands of turns: users state facts and ask for them months later, with restarts in between.

    python examples/assistant.py [--turns 3000] [--budget 2000]

The person is generated (`parts/life.py`) and speaks English and Chinese. Some facts change later; the newest one is
correct. The scripted model reads the view. If the answer is not in it, the model calls `find`.
"""

import argparse
import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from parts.ledger import Ledger, milliseconds
from parts.life import HOUR, START, Turn, live, values_of

import quire

PROMPT = "You are a personal assistant. Remember what you are told; if something changes, the newest counts."
DATE = re.compile(r"\d+ [A-Z]\w\w \d{4}")
HIT = re.compile(r"^\[usr-(\d+)\].*?User: (.*)$", re.MULTILINE)


class Assistant:
    """One context in one file, over the whole run."""

    def __init__(self, path: Path, budget: int) -> None:
        self.path, self.budget = path, budget
        self.now = START
        self.ledger = Ledger(budget)
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # seconds of questions, seconds of other turns
        self.outcomes = Counter[str]()
        self.told: dict[str, tuple[int, int]] = {}  # by fact: its last message and its day
        self.example = ""
        self.open()

    def open(self) -> None:
        """Open the context; the file has the whole state. The clock shows the person's time, not the machine's."""
        self.storage = quire.open_storage(self.path)
        if self.storage.load("life") is None:
            quire.open(self.storage, "life").system(PROMPT)
        pages = quire.ContextSystem(self.storage, "life", clock=lambda: self.now)
        self.ctx = quire.Context(pages, budget=self.budget)
        self.tools = self.ctx.tools.only("find", "read_page")
        self.beside = quire.count_tools(self.tools.openai())

    @property
    def day(self) -> int:
        """Return the number of days so far."""
        return (self.now - START) // (24 * HOUR)

    def restart(self) -> None:
        """Close and open the context, as after a crash or an update."""
        before = len(self.ctx.messages())
        self.ctx.close()
        self.storage.close()
        self.open()
        assert len(self.ctx.messages()) == before

    def hear(self, turn: Turn) -> None:
        """Run one turn: add the message, draw a view, add the answer."""
        self.now = turn.time
        begun = process_time()
        said = self.ctx.user(turn.said)
        asks = turn.said.endswith(("?", "？"))  # other turns need no recall: their views only grow
        view = self.ctx.render(reserve=self.beside, recall=asks)
        self.seconds[asks].append(process_time() - begun)
        self.ledger.sent(self.ctx, view, reserve=self.beside)
        if turn.asks:
            self.answer(turn, view, recalled=asks)
            return
        if turn.subject:
            self.told[turn.subject] = (said, self.day)
        self.ctx.assistant("I will remember that. 记住了。" if turn.subject else "I see. 好的。")

    def answer(self, turn: Turn, view: quire.View, *, recalled: bool) -> None:
        """Answer from the view or after a search, and count correct answers."""
        message, day = self.told[turn.subject]
        self.outcomes["asked"] += 1
        self.outcomes["in the sliding window"] += self.ledger.window_reaches(message)
        found, how = read(view, turn.subject, recalled=recalled), "from the view"
        if found is None:
            found, how = self.search(turn.subject), "after a search"
        self.ctx.assistant(f"{found}." if found else "I do not know.")
        self.outcomes[how if found == turn.value else "wrong" if found else "never"] += 1
        self.example = f"{turn.said} {found}, told on day {day}, {how}"

    def search(self, subject: str) -> str | None:
        """Call `find` as a model does, with an exact phrase. Of the matching pages, use the newest."""
        query = f'"{subject}是"' if subject[-1] > "z" else f'"{subject} is"'
        call = quire.ToolCall(f"call_{self.ctx.seq}", "find", json.dumps({"query": query, "limit": 30}))
        self.ctx.assistant(tool_calls=[call])
        self.ctx.tool_result(call.id, self.tools.call(call))
        self.ledger.sent(self.ctx, self.ctx.render(reserve=self.beside), reserve=self.beside)
        found = self.ctx.messages()[-1].text.replace("«", "").replace("»", "")
        told = [(int(hit[1]), value) for hit in HIT.finditer(found) for value in values_of(subject, hit[2])]
        return max(told)[1] if told else None


def read(view: quire.View, subject: str, *, recalled: bool) -> str | None:
    """Return what the user said, in the last turns or in pages recalled for this question; others can be outdated."""
    last = [said for part in view.parts if part.kind == "exchange" for said in part.messages if said.role == "user"]
    if found := values_of(subject, "\n".join(said.text for said in last)):
        return found[-1]
    told, day = [], ""
    blocks = [part.messages[0].text for part in view.parts if recalled and part.kind == "recalled"]
    for line in "".join(blocks).splitlines():
        day = f"{datetime.strptime(line, '%d %b %Y'):%Y-%m-%d}" if DATE.fullmatch(line) else day
        told += [(day, value) for value in values_of(subject, line) if line.startswith("User: ")]
    return max(reversed(told), key=lambda one: one[0])[1] if told else None


def main(turns: int, budget: int, path: Path) -> None:
    """Run the turns of the generated person and print the costs."""
    assistant, restarts = Assistant(path, budget), 0
    for number, turn in enumerate(live(turns), 1):
        assistant.hear(turn)
        if number % max(1, turns // 10) == 0:
            assistant.restart()
            restarts += 1
            said, tokens = len(assistant.ctx.messages()), assistant.ctx.render(preview=True).tokens
            print(f"day {assistant.day:3}: {said:5,} messages, a view of {tokens:5,} tokens. {assistant.example}")

    ctx, outcomes = assistant.ctx, assistant.outcomes
    asked = outcomes["asked"]
    for name in ("from the view", "after a search", "wrong", "never"):
        print(f"{name:16}{outcomes[name]:5,} of {asked:,} questions")
    print(f"{'':16}{outcomes['in the sliding window']:5,} of {asked:,} could be answered from a sliding window")
    print(f"time of a turn: {milliseconds(assistant.seconds[False])}")
    print(f"of a question, with recall: {milliseconds(assistant.seconds[True])}")
    size = path.stat().st_size
    print(f"on disk: {size:,} bytes, {size // len(ctx.messages()):,} a message; {restarts} restarts")
    assistant.ledger.show()
    assert outcomes["from the view"] + outcomes["after a search"] == asked
    assert ctx.check() == []
    ctx.close()
    assistant.storage.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3_000)
    parser.add_argument("--budget", type=int, default=2_000)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        main(given.turns, given.budget, Path(folder) / "life.db")
