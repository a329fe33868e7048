"""Simulate a week of a small team that uses everything together, and print a report in numbers.

    python examples/week.py [--days 7] [--tickets 12] [--customers 4]

A coding agent works through the gateway. A support bot answers customers, each in a context of its own, as turns. All
read one handbook, and no agent can change it. Sub-agents are forks. A customer is erased, a worker is killed, and the
store is restored from a backup after its file is damaged. The models are scripted; they see only their requests.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from parts.ledger import Ledger
from parts.week_incidents import count_messages, crash, damage_and_restore, erase
from parts.week_team import CONTEXT, Coder, Tally, artifact, model, serve

import quire
import quire.gateway
from quire.providers import parse
from quire.testing import StubProvider

HANDBOOK = "Refunds take five days. Lockers are in Leipzig. Only the operator changes this handbook."
BUDGET = 1_200
SUBAGENTS = ("sub-a", "sub-b")


def support(store: Path, tally: Tally, ledgers: dict[str, Ledger], day: int, users: list[str]) -> None:
    """Answer each customer: an order, a repeated request, a question about the first day, an attack on the handbook."""
    with quire.Library(store) as library:
        for number, user in enumerate(users):
            if not library.exists(user):
                library.fork("team", user, at="handbook")
            order = f"Order W-{day}-{number} goes to locker L-{day}{number}7."
            serve(library, ledgers, user, f"order-{day}", order, BUDGET)
            tally.repeated += serve(library, ledgers, user, f"order-{day}", order, BUDGET)[1]
            for number_of_note in range(6):
                note = (
                    f"The parcel {day}-{number_of_note} of street {number} has {number_of_note + 3} kg. "
                    + "It waits at the gate. " * 20
                )
                serve(library, ledgers, user, f"note-{day}-{number_of_note}", note, BUDGET)
            first = f"Which locker has order W-1-{number}?"
            tally.ask(serve(library, ledgers, user, f"ask-{day}", first, BUDGET)[0], f"L-1{number}7")
            tools = library.open(user).tools
            changed = tools.call("write_page", {"page": "docs-1", "text": "Refunds take one day."})
            assert changed.startswith("PermissionDenied"), changed
            tally.refused += 1


def subagent(store: Path, name: str, day: int) -> Ledger:
    """Work in a fork of the shared context, and write the result on the board, in a thread of its own."""
    with quire.Library(store) as library:
        library.fork("team", f"{name}-{day}", at="handbook")
        ledger: dict[str, Ledger] = {}
        answer, _ = serve(library, ledger, f"{name}-{day}", "1", "How many days do refunds take?", BUDGET)
        with library.turn("board") as board:
            board.write(f"{name} on day {day}", answer)
        library.delete(f"{name}-{day}")
    return ledger[f"{name}-{day}"]


def main(store: Path, days: int, tickets: int, customers: int) -> None:
    tally, ledgers, lost = Tally(), dict[str, Ledger](), 0
    users = [f"customer-{number}" for number in range(customers)]
    coder = Coder(tally)
    with quire.open(store, "team", budget=BUDGET) as team:
        team.system("You are one of a small team. Follow the handbook.")
        handbook = team.document("Handbook", HANDBOOK, pinned=True)
        team.checkpoint("handbook")
    for day in range(1, days + 1):
        with ExitStack() as stack:
            stub = stack.enter_context(StubProvider(model))
            running = quire.gateway.start(store, anthropic=stub.url, mode="fold", budget=4 * BUDGET, port=0)
            gateway = stack.enter_context(running)
            coder.work(gateway.url, stub, day, tickets)
            answer = coder.ask(gateway.url, stub, f"What is built from ticket T-1{tickets // 2:02}?")
            gateway.gateway.sessions.drain()
        with quire.open(store, CONTEXT, create=False) as session:  # what `quire mcp` gives the model
            hits = [session.pages.detail(hit.index) for hit in session.find(f'"T-1{tickets // 2:02}"', segment="usr")]
        tally.ask("\n".join([answer, *hits]), artifact(1, tickets // 2))
        support(store, tally, ledgers, day, users)
        with ThreadPoolExecutor() as pool:
            for ledger in pool.map(lambda name, day=day: subagent(store, name, day), SUBAGENTS):
                tally.add(ledger)
        if day == 2 or days == 1:
            erase(store, users.pop(), f"L-1{customers - 1}7", tally.incidents)
            lost += crash(store, tally.incidents)
        if day == 3 or days < 3:
            lost += damage_and_restore(store, tally.incidents)
    for ledger in ledgers.values():
        tally.add(ledger)
    with quire.Library(store) as library:
        names = [name for name in library.list() if name.startswith(("team", "customer"))]
        assert all(library.open(name).pages.detail(handbook) == HANDBOOK for name in names)
        results = len(list(library.open("board").pages.children("mem-0")))
        lost += len(SUBAGENTS) * days - results
        lost += len(parse(coder.items, "anthropic")) - len(library.open(CONTEXT).messages())
        lost += sum(2 * 8 * days - len(library.open(user).messages()) + 1 for user in users)
    report(tally, days, lost, count_messages(store))


def report(tally: Tally, days: int, lost: int, messages: int) -> None:
    """Print the figures of the week, and check them."""
    saved = 100 - 100 * tally.cost / tally.plain_cost
    print(f"{days} days, {tally.calls:,} model calls, {messages:,} messages in the store")
    print(f"{'':24}{'quire':>14}{'no management':>16}")
    print(f"{'input tokens':24}{tally.tokens:>14,}{tally.plain_tokens:>16,}")
    print(f"{'cost (cached × 0.1)':24}{tally.cost:>14,.0f}{tally.plain_cost:>16,.0f}   {saved:.0f} % saved")
    print(f"facts asked: {tally.asked}, answered: {tally.answered}")
    print(f"repeated requests: {tally.repeated}, answered once each; changes of the handbook refused: {tally.refused}")
    for incident in tally.incidents:
        print(f"incident: {incident}")
    print(f"{len(tally.broken)} views broke a rule; {lost} lost")
    assert (tally.answered, lost, tally.broken) == (tally.asked, 0, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--tickets", type=int, default=12)
    parser.add_argument("--customers", type=int, default=4)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        main(Path(folder) / "team.db", given.days, given.tickets, given.customers)
