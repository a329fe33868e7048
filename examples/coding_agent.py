"""Run a coding agent over a real folder with live windows: it fixes bugs with a budget of 3,000 tokens.

    python examples/coding_agent.py [--rounds 12] [--budget 3000]

The folder, the edits and the test runs are real. Only the model is scripted (`parts/repairer.py`): it decides by the
view alone. Replace it with a call of your provider: it takes messages and returns a message.
"""

import argparse
import html
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parts.file_viewer import Files
from parts.ledger import Ledger
from parts.repairer import Repairer
from parts.scripted_model import short
from parts.workshop import Workshop, break_project, make_project

import quire
from quire.windows.apps import Todo

PROMPT = "You mend Python projects. The files window shows the file you work on, the todo window what is left to try."
Model = Callable[[list[dict[str, Any]]], dict[str, Any]]


class Agent:
    """The loop: draw a view, ask the model, run its calls, until it answers."""

    def __init__(self, ctx: quire.Context, folder: Path, model: Model) -> None:
        self.ctx, self.folder, self.model = ctx, folder, model
        self.workshop = Workshop(folder)
        self.ledger, self.called, self.loud = Ledger(ctx.budget), Counter[str](), True
        ctx.system(PROMPT)
        ctx.windows.register(Files, folder)
        ctx.windows.register(Todo)
        self.file = ctx.windows.open("files").id
        self.todo = ctx.windows.open("todo").id
        # One task has many steps: more than the 100 calls that are allowed between two messages of the user.
        own = ctx.tools_of(ctx.as_agent("agent", quota=quire.Quota(calls=1_000)))
        self.tools = own.only("find", "read_page", "expand_details", "window")
        self.beside = quire.count_tools(self.tools.openai(beside=self.workshop.schemas()))  # sent with the view

    def answer(self, said: str, most: int = 200) -> str:
        """Return the agent's final answer to a message."""
        ctx = self.ctx
        ctx.user(said)
        self.say("user", said)
        for _ in range(most):
            view = ctx.render(reserve=self.beside)
            self.ledger.sent(ctx, view, reserve=self.beside)
            self.check_windows(view)
            reply = self.model(view.openai())
            ctx.add(reply)
            if not ctx.pending_calls():
                self.say("agent", reply["content"])
                return str(reply["content"])
            for call in ctx.pending_calls():
                self.run(call)
        raise TimeoutError(f"no answer after {most} calls")

    def run(self, call: quire.ToolCall) -> None:
        """Run one call of the project's tools or of quire's, and add its result."""
        own = call.name in self.tools
        result = self.tools.call(call) if own else self.workshop.call(call.name, json.loads(call.arguments))
        self.ctx.tool_result(call.id, result)
        self.called[call.name] += 1
        self.say(call.name, f"{short(call.arguments)} → {short(result)}")

    def say(self, who: str, text: str) -> None:
        """Print an event, unless the example runs quietly."""
        if self.loud:
            print(f"{who:9}  {text}")

    def check_windows(self, view: quire.View) -> None:
        """Check that the newest file window in the view equals the file on the disk, unless it is only a line."""
        windows = [html.unescape(message.text) for message in view.messages if f'id="{self.file}"' in message.text]
        path = windows[-1].partition("<Content>")[2].split(":")[0]
        if path not in ("", "."):
            numbered = enumerate((self.folder / path).read_text(encoding="utf-8").splitlines(), 1)
            assert all(f"{number} {line}" in windows[-1] for number, line in numbered)


def main(folder: Path, budget: int, rounds: int) -> None:
    """Have bugs fixed round after round, and print the costs."""
    with quire.open("memory:", budget=budget) as ctx:
        agent = Agent(ctx, folder, Repairer())
        agent.answer("The ticket of this week is SHOP-4127. 茶壶 and 茶杯 are what we sell most.")
        for turn in range(rounds):
            break_project(folder, turn)
            agent.loud = turn == 0
            before = agent.ledger.quire.calls
            assert agent.answer("Somebody broke it. Make all tests pass.") == "All tests pass."
            calls, said = agent.ledger.quire.calls - before, len(ctx.messages())
            print(f"round {turn + 1}: fixed in {calls} calls; {said} messages so far, {ctx.render(preview=True)}")

        agent.loud = True
        first = ctx.find('"run 1" failed')[0].index
        print(f"\nThe first test run is page {first}: {ctx.why(first).rule}.")
        agent.answer("Write CHANGES.md: the ticket, and which tests failed in the very first run.")
        written = (folder / "CHANGES.md").read_text(encoding="utf-8")
        print(written)
        assert written.startswith("SHOP-4127: mended\n- test_bulk_discount_begins_at_100\n")
        assert agent.called["find"] > 0  # folded pages were found again
        assert ctx.why(first).shown in ("line", "no")
        assert ctx.check() == []

    shop = agent.workshop
    assert shop.run_tests().endswith("OK")
    print(f"{shop.runs} test runs, {shop.edits} edits, no call to read a file: the window shows the current file")
    agent.ledger.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=12, help="how often something breaks")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        make_project(Path(temporary))
        main(Path(temporary), given.budget, given.rounds)
