"""Run a support desk with the tools of tau-bench's airline domain: one customer, fifteen requests, 4,000 tokens.

    python examples/airline_support.py [--budget 4000]

Customer and clerk are scripted (`parts/airline_people.py`). Everything else works as with a real model: the clerk sees
only the view, and calls the fourteen tools of the airline and three tools of quire.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from parts.airline_data import POLICY, database
from parts.airline_people import Clerk, Customer
from parts.airline_tools import Airline, schemas
from parts.ledger import Ledger
from parts.scripted_model import short

import quire

Model = Callable[[list[dict[str, Any]]], dict[str, Any]]


class SupportDesk:
    """One conversation: takes the customer's messages and returns the clerk's answers."""

    def __init__(self, ctx: quire.Context, airline: Airline, model: Model) -> None:
        self.ctx, self.airline, self.model = ctx, airline, model
        self.ledger, self.called, self.pairs = Ledger(ctx.budget), Counter[str](), 0
        ctx.system(POLICY)  # pinned, in a segment that agents can only read
        self.tools = ctx.tools.only("find", "read_page", "write_page")
        self.beside = quire.count_tools(self.tools.openai(beside=schemas()))

    def answer(self, said: str, most: int = 30) -> str:
        """Return the clerk's final answer to a message."""
        print(f"\ncustomer  {said}")
        self.ctx.user(said)
        for _ in range(most):
            view = self.ctx.render(reserve=self.beside, recall=0.2)
            self.ledger.sent(self.ctx, view, reserve=self.beside)
            self.pairs += paired(view)
            self.ctx.add(self.model(view.openai()))
            calls = self.ctx.pending_calls()
            if not calls:
                answer = self.ctx.messages()[-1].text
                print(f"clerk     {short(answer, 150)}")
                return answer
            for call in calls:
                self.run(call)
        raise TimeoutError(f"no answer after {most} calls")

    def run(self, call: quire.ToolCall) -> None:
        """Run one call of the airline's tools or of quire's."""
        own = call.name in self.tools
        result = self.tools.call(call) if own else self.airline.call(call.name, json.loads(call.arguments))
        self.ctx.tool_result(call.id, result)
        self.called[call.name] += 1
        print(f"  {call.name} {short(call.arguments)} → {short(result, 60)}")


def paired(view: quire.View) -> int:
    """Return the number of calls in a view. Check that each is followed by its result."""
    made = [call.id for message in view.messages for call in message.tool_calls]
    assert made == [message.tool_call_id for message in view.messages if message.role == "tool"]
    return len(made)


def supervise(ctx: quire.Context) -> None:
    """Undo a note that the clerk overwrote by mistake. The later conversation is kept."""
    for entry in list(ctx.history(actor="agent", reverse=True)):
        note = next((page for page in entry.pages if page.startswith("mem-")), None)
        if note and "aisle" in ctx.pages.detail(note):
            ctx.undo(entry)
            print(f"\nsupervisor  undoes entry {entry.seq}; {note} says again: {ctx.pages.detail(note)}")
            assert "window" in ctx.pages.detail(note)
            return


def main(budget: int) -> None:
    """Serve one customer and check the guarantees."""
    airline, customer = Airline(database()), Customer()
    with quire.open("memory:", "lena", budget=budget) as ctx:
        desk = SupportDesk(ctx, airline, Clerk())
        answers: dict[str, str] = {}
        said = customer.hear("")
        while said is not None:
            answers[said] = desk.answer(said)
            if "aisle" in said:
                supervise(ctx)
            said = customer.hear(answers[said])
        check(ctx, desk, answers)


def check(ctx: quire.Context, desk: SupportDesk, answers: dict[str, str]) -> None:
    """Check the customer's reservations and the refused requests, and print the costs."""
    bookings, users = desk.airline.data["reservations"], desk.airline.data["users"]
    assert bookings["HM93WC"]["total_baggages"] == 2
    assert bookings["HM93WC"]["flights"][0]["flight_number"] == "QR326"
    assert bookings["HM93WC"]["passengers"][1]["first_name"] == "Thomas"
    assert bookings["ZK44TB"]["status"] == "cancelled"
    assert "status" not in bookings["R7PD2K"]  # the policy forbids it, and no agent could change the policy
    assert "everything can be cancelled" not in ctx.messages()[0].text
    assert bookings["NEW004"]["passengers"][1]["first_name"] == "Greta"  # said in the first message, folded long ago
    assert users["lena_brandt_5209"]["payment_methods"]["certificate_9100002"]["amount"] == 100
    assert "素食" in answers["What did I say at the beginning that my mother eats?"]
    assert ctx.check() == []
    names = [tool["function"]["name"] for tool in schemas()]
    assert all(desk.called[name] for name in names)
    told = f"the airline's {len(names)} tools were called {sum(desk.called[name] for name in names)} times"
    print(f"\n{told}; the views contained {desk.pairs} calls, each with its result")
    reached = "yes" if desk.ledger.window_reaches(1) else "no"
    print(f"a sliding window would still contain the message about the mother: {reached}")
    desk.ledger.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=4_000)
    main(parser.parse_args().budget)
