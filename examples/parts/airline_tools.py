"""The fourteen tools of tau-bench's airline domain, with its arguments and answers, over the example's own database."""

import ast
import json
import operator
from collections.abc import Iterator
from typing import Any

from parts.airline_data import AIRPORTS, NOW

Values = dict[str, Any]

_BOOKED = "flights:array passengers:array payment_methods:array total_baggages:integer nonfree_baggages:integer"
_TOOLS: dict[str, tuple[str, str]] = {
    "book_reservation": ("Book.", f"user_id origin destination flight_type cabin {_BOOKED} insurance"),
    "calculate": ("Calculate an expression of numbers.", "expression"),
    "cancel_reservation": ("Cancel a whole reservation.", "reservation_id"),
    "get_reservation_details": ("Look at a reservation.", "reservation_id"),
    "get_user_details": ("Look at a customer's profile.", "user_id"),
    "list_all_airports": ("All airports with their cities.", ""),
    "search_direct_flight": ("Direct flights on a day.", "origin destination date"),
    "search_onestop_flight": ("Flights with one stop on a day.", "origin destination date"),
    "send_certificate": ("Give a customer a certificate.", "user_id amount:integer"),
    "think": ("Think before you act. Changes nothing.", "thought"),
    "transfer_to_human_agents": ("Hand the customer to a human, with a summary.", "summary"),
    "update_reservation_baggages": (
        "Change the bags of a reservation.",
        "reservation_id total_baggages:integer nonfree_baggages:integer payment_id",
    ),
    "update_reservation_flights": ("Change flights or cabin.", "reservation_id cabin flights:array payment_id"),
    "update_reservation_passengers": ("Correct the passengers.", "reservation_id passengers:array"),
}
_ITEMS: dict[str, Values] = {"array": {"items": {"type": "object"}}}
WRITES = {name for name in _TOOLS if name.startswith(("book", "cancel", "send", "update"))}


def schemas() -> list[Values]:
    """Return the tools in the form of OpenAI's chat completions."""
    return [_schema(name, *described) for name, described in _TOOLS.items()]


def _schema(name: str, description: str, parameters: str) -> Values:
    pairs = [parameter.partition(":")[::2] for parameter in parameters.split()]
    shape = {
        "type": "object",
        "properties": {key: {"type": kind or "string", **_ITEMS.get(kind, {})} for key, kind in pairs},
        "required": [key for key, _ in pairs],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": shape}}


class Airline:
    """Answers calls with the JSON of tau-bench. A refused call has an answer too: `Error: …`."""

    def __init__(self, data: Values) -> None:
        self.data = data

    def call(self, name: str, arguments: Values) -> str:
        """Run one of the tools."""
        if name not in _TOOLS:
            return f"Error: there is no tool {name}"
        try:
            answer = getattr(self, name)(**arguments)
        except KeyError as error:
            return f"Error: {error.args[0]} not found"
        except (SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
            return f"Error: {error}"
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    # Reading

    def get_user_details(self, user_id: str) -> Values:
        return dict(self.data["users"][user_id])

    def get_reservation_details(self, reservation_id: str) -> Values:
        return dict(self.data["reservations"][reservation_id])

    def list_all_airports(self) -> Values:
        return dict(AIRPORTS)

    def search_direct_flight(self, origin: str, destination: str, date: str) -> list[Values]:
        return [flight for flight in self._leaving(origin, date) if flight["destination"] == destination]

    def search_onestop_flight(self, origin: str, destination: str, date: str) -> list[list[Values]]:
        return [
            [{**first, "date": date}, {**second, "date": date}]
            for first in self._leaving(origin, date)
            for second in self._leaving(first["destination"], date)
            if second["destination"] == destination
            and second["scheduled_departure_time_est"] > first["scheduled_arrival_time_est"]
        ]

    def calculate(self, expression: str) -> str:
        return str(round(_value(ast.parse(expression, mode="eval").body), 2))

    def think(self, thought: str) -> str:
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        return "Transfer successful"

    # Changes

    def book_reservation(self, user_id: str, passengers: list[Values], **wanted: Any) -> Values:
        legs = [self._leg(leg, wanted["cabin"]) for leg in wanted["flights"]]
        price = sum(leg["price"] for leg in legs) * len(passengers) + 50 * wanted["nonfree_baggages"]
        price += 30 * len(passengers) * (wanted["insurance"] == "yes")
        paid = sum(payment["amount"] for payment in wanted["payment_methods"])
        if paid != price:
            raise ValueError(f"payment amount does not add up, total price is {price}, but paid {paid}")
        user = self.data["users"][user_id]
        for payment in wanted["payment_methods"]:
            _pay(user, payment["payment_id"], payment["amount"])
        code = f"NEW{len(self.data['reservations']):03}"
        payments = wanted.pop("payment_methods")
        booked = {"reservation_id": code, "user_id": user_id, "passengers": passengers, **wanted, "flights": legs}
        self.data["reservations"][code] = {**booked, "payment_history": payments, "created_at": NOW}
        user["reservations"].append(code)
        return dict(self.data["reservations"][code])

    def cancel_reservation(self, reservation_id: str) -> Values:
        found: Values = self.data["reservations"][reservation_id]
        back = [{**payment, "amount": -payment["amount"]} for payment in found["payment_history"]]
        found["payment_history"] += back
        found["status"] = "cancelled"
        return dict(found)

    def update_reservation_flights(
        self, reservation_id: str, cabin: str, flights: list[Values], payment_id: str
    ) -> Values:
        found: Values = self.data["reservations"][reservation_id]
        legs = [self._leg(leg, cabin) for leg in flights]
        before = sum(leg["price"] for leg in found["flights"])
        difference = (sum(leg["price"] for leg in legs) - before) * len(found["passengers"])
        return self._changed(found, payment_id, difference, flights=legs, cabin=cabin)

    def update_reservation_baggages(
        self, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Values:
        found: Values = self.data["reservations"][reservation_id]
        more = max(0, nonfree_baggages - found["nonfree_baggages"])
        bags = {"total_baggages": total_baggages, "nonfree_baggages": nonfree_baggages}
        return self._changed(found, payment_id, 50 * more, **bags)

    def update_reservation_passengers(self, reservation_id: str, passengers: list[Values]) -> Values:
        found: Values = self.data["reservations"][reservation_id]
        if len(passengers) != len(found["passengers"]):
            raise ValueError("number of passengers does not match")
        found["passengers"] = passengers
        return dict(found)

    def send_certificate(self, user_id: str, amount: int) -> str:
        methods = self.data["users"][user_id]["payment_methods"]
        name = f"certificate_{9_100_000 + len(methods)}"
        methods[name] = {"source": "certificate", "amount": amount}
        return f"Certificate {name} added to user {user_id} with amount {amount}."

    # Helpers

    def _leaving(self, origin: str, date: str) -> Iterator[Values]:
        for flight in self.data["flights"].values():
            day = flight["dates"].get(date, {})
            if flight["origin"] == origin and day.get("status") in ("available", "delayed"):
                yield {**{key: value for key, value in flight.items() if key != "dates"}, **day}

    def _leg(self, wanted: Values, cabin: str) -> Values:
        flight = self.data["flights"][wanted["flight_number"]]
        day = flight["dates"][wanted["date"]]
        if day["status"] != "available":
            raise ValueError(f"flight {wanted['flight_number']} not available on date {wanted['date']}")
        ends = {"origin": flight["origin"], "destination": flight["destination"]}
        return {"flight_number": wanted["flight_number"], "date": wanted["date"], "price": day["prices"][cabin], **ends}

    def _changed(self, found: Values, payment_id: str, amount: int, **changes: Any) -> Values:
        _pay(self.data["users"][found["user_id"]], payment_id, amount)
        found.update(changes)
        if amount:
            found["payment_history"].append({"payment_id": payment_id, "amount": amount})
        return dict(found)


def _pay(user: Values, payment_id: str, amount: int) -> None:
    method = user["payment_methods"][payment_id]
    if method["source"] == "gift_card":
        if method["amount"] < amount:
            raise ValueError(f"not enough balance in {payment_id}")
        method["amount"] -= amount
    elif method["source"] == "certificate":
        del user["payment_methods"][payment_id]


_SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _value(node: ast.expr) -> float:
    """Return the value of an arithmetic expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return float(_SIGNS[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError("invalid characters in expression")
