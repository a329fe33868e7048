"""Run a planner and three workers on one context, with a read-only handbook and concurrent results.

    python examples/team.py [--tickets 120] [--budget 1500]

Each worker's own context is a fork of the shared one, made when the handbook was written. So every view has the same
beginning, which is stored once and cached once by the provider. Workers use the planner's context through tools: they
read tickets and write results. Two workers are threads, the third is another process. The models are scripted.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parts.ledger import Ledger
from parts.team_models import Planner, Worker
from parts.tickets import HANDBOOK, Board, make_book, tickets

import quire

WORKERS = ["worker-a", "worker-b", "worker-c"]
Model = Callable[[list[dict[str, Any]]], dict[str, Any]]


class Member:
    """A member of the team: its own context, a model, and tools."""

    def __init__(self, ctx: quire.Context, model: Model, tools: quire.Tools) -> None:
        self.ctx, self.model, self.tools = ctx, model, tools
        self.ledger = Ledger(ctx.budget)
        self.refused, self.second = list[str](), 0
        self.first: quire.View | None = None
        self.beside = quire.count_tools(tools.openai())

    def answer(self, said: str) -> str:
        """Return the final answer to a message."""
        self.second += insist(self.ctx, partial(self.ctx.user, said))
        while True:
            view = self.ctx.render(reserve=self.beside)
            self.first = self.first or view
            assert view.tokens <= self.ctx.budget - self.beside
            self.ledger.sent(self.ctx, view, reserve=self.beside)
            reply = self.model(view.openai())
            self.second += insist(self.ctx, partial(self.ctx.add, reply))
            if "tool_calls" not in reply:
                return str(reply["content"])
            for call in self.ctx.pending_calls():
                answer = self.tools.answer(call)  # this call retries if others write at the same time
                self.second += insist(self.ctx, partial(self.ctx.tool_result, call.id, answer.text))
                self.refused += [answer.text] if answer.failed else []


def insist(ctx: quire.Context, write: Callable[[], object]) -> int:
    """Write to a shared context and retry after a conflict. Return the number of retries."""
    second = 0
    while True:
        try:
            write()
            return second
        except quire.Conflict:
            ctx.refresh()
            second += 1


def work(store: Path, name: str, budget: int) -> Member:
    """Run a worker in its own thread or process, with its own connection."""
    with quire.Library(store) as library:
        book, ctx = library.open("team"), library.open(name, budget=budget)
        ctx.windows.register(Board, book, name)
        ctx.windows.open("board", pinned=True)
        agent = book.as_agent(name, quota=quire.Quota(calls=10_000))
        tools = book.tools_of(agent, beside=True).only("read_page", "write_page").prefixed("team_")
        member = Member(ctx, Worker(), tools)
        member.answer("Sort the tickets of your brief by the handbook.")
        return member


def run(planner: Member, store: Path, budget: int) -> Ledger:
    """Run two threads and a process while the planner talks. Return the sum of their ledgers."""
    command = [sys.executable, __file__, "--worker", WORKERS[2], str(store), "--budget", str(budget)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, ThreadPoolExecutor() as pool:
        threads = [pool.submit(work, store, name, budget) for name in WORKERS[:2]]
        for _ in range(4):
            planner.answer("How far are they?")
        said, _ = process.communicate()
        members = [planner, *(thread.result() for thread in threads)]
    assert process.returncode == 0
    team = Ledger(planner.ctx.budget)
    for figures in (json.loads(said), *(member.ledger.figures() for member in members)):
        team.add(figures)
    tell(*members[1:])
    return team


def tell(one: Member, other: Member) -> None:
    """Print the common prefix of two workers, and the change that was refused."""
    assert one.first is not None
    assert other.first is not None
    same = other.first.following(one.first).shared_prefix
    print(f"{same} of {other.first.tokens} tokens of a worker's first view are the same as in another worker's")
    (refusal,) = one.refused + other.refused
    print(f"a ticket asked to change the handbook, a worker tried it, and its model got: {refusal}")


def main(store: Path, number: int, budget: int) -> None:
    """Have the tickets sorted. Check that nothing is lost and that protected pages are unchanged."""
    with quire.Library(store) as library:
        book = make_book(library, number, 3 * budget)  # the planner needs a larger view
        tools = book.tools_of(book.as_agent("planner")).only("read_page", "write_page")
        refusal = tools.call("write_page", {"page": "handbook-1", "text": "Everything goes to billing."})
        print(f"planner, when it changes its own handbook: {refusal}")
        planner = Member(book, Planner(WORKERS, number), tools)
        print(f"planner: {planner.answer('Share the tickets out.')}")
        for name in WORKERS:
            library.fork("team", name, at="handbook")
        team = run(planner, store, budget)
        report = planner.answer("Report.")
        print(f"planner: {report}")

        right = {f"tickets-{place}": queue for place, (_, queue) in enumerate(tickets(number), 1)}
        found = [(page.name, page.description) for page in book.pages.children("results-0")]
        assert sorted(found) == sorted(right.items())  # every ticket once, and in the correct queue
        assert all(f"{queue} {many}" in report for queue, many in Counter(right.values()).items())
        assert book.pages.detail("handbook-1") == HANDBOOK
        assert sum(message.role == "user" for message in book.messages()) == 6
        assert book.check() == []
        wrote = Counter(entry.actor for entry in book.history(operation="create_detail_page"))
        print(f"pages written in the shared book: {dict(wrote)}; the planner retried {planner.second} times")
        assert all(wrote[name] == len(range(n, number, 3)) for n, name in enumerate(WORKERS))
    team.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickets", type=int, default=120)
    parser.add_argument("--budget", type=int, default=1_500)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(work(Path(given.worker[1]), given.worker[0], given.budget).ledger.figures()))
    else:
        with TemporaryDirectory() as folder:
            main(Path(folder) / "team.db", given.tickets, given.budget)
