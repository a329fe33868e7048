"""A small airline: users, reservations and flights in the form of tau-bench's airline domain."""

from typing import Any

NOW = "2024-05-15T15:00:00"

POLICY = """\
# How the desk works

It is 2024-05-15 15:00. You help customers to book, change and cancel flights, with the tools alone.

- Before you change the database, say what you will do and wait for a yes.
- Call one tool at a time. What the tools cannot do goes to a human agent, once and with a summary.
- Look at a reservation before you speak of it, and never promise what this page forbids.

## Booking
- Passengers need a first name, a last name and a date of birth. All fly the same flights in the same cabin.
- Pay with at most one certificate, the rest with a gift card or a credit card of the customer's profile.
- Free bags a passenger, in basic economy, economy and business: regular 0, 1, 2; silver 1, 2, 3; gold 2, 3, 3.
  A further bag is 50 dollars, travel insurance 30 dollars a passenger.

## Changes
- Basic economy is not changed. Other reservations keep their origin and destination; the customer pays the difference.
- Bags can be added, not taken away. Names can be corrected, the number of passengers stays.

## Cancelling
- Within 24 hours of booking, or in business, always. Else with travel insurance, for health or weather. Else not.

## Compensation
- If a flight is delayed and the customer asks: 50 dollars a passenger as a certificate, for silver and gold members.
"""

AIRPORTS = {
    "JFK": "New York",
    "SEA": "Seattle",
    "ORD": "Chicago",
    "DEN": "Denver",
    "BOS": "Boston",
    "MIA": "Miami",
    "SFO": "San Francisco",
    "PEK": "Beijing 北京",
}

_ROUTES = (
    ("QR101", "JFK", "SEA", "06:30:00", "12:45:00", 70, 140, 390),
    ("QR117", "JFK", "SEA", "17:10:00", "23:20:00", 64, 122, 350),
    ("QR204", "JFK", "ORD", "07:00:00", "09:40:00", 38, 71, 210),
    ("QR206", "ORD", "SEA", "11:15:00", "16:05:00", 30, 44, 190),
    ("QR209", "JFK", "DEN", "08:20:00", "12:50:00", 45, 80, 260),
    ("QR233", "DEN", "SEA", "15:00:00", "18:10:00", 41, 66, 205),
    ("QR310", "BOS", "MIA", "07:45:00", "11:10:00", 55, 98, 280),
    ("QR318", "BOS", "MIA", "13:30:00", "17:00:00", 52, 91, 270),
    ("QR326", "BOS", "MIA", "20:05:00", "23:30:00", 58, 104, 295),
    ("QR402", "SFO", "PEK", "01:15:00", "14:20:00", 310, 620, 2400),
)
_LATE = {("QR310", "2024-05-16"): "delayed"}


def _flight(number: str, origin: str, destination: str, leaves: str, lands: str, *prices: int) -> dict[str, Any]:
    cabins = ("basic_economy", "economy", "business")
    dates: dict[str, Any] = {}
    for day in range(16, 29):
        date = f"2024-05-{day}"
        seats = dict(zip(cabins, (9 + day % 5, 6 + day % 7, 2 + day % 3), strict=True))
        open_day = {"status": "available", "available_seats": seats, "prices": dict(zip(cabins, prices, strict=True))}
        dates[date] = {"status": _LATE[number, date]} if (number, date) in _LATE else open_day
    return {
        "flight_number": number,
        "origin": origin,
        "destination": destination,
        "scheduled_departure_time_est": leaves,
        "scheduled_arrival_time_est": lands,
        "dates": dates,
    }


def _leg(number: str, date: str, origin: str, destination: str, price: int) -> dict[str, Any]:
    return {
        "origin": origin,
        "destination": destination,
        "flight_number": number,
        "date": date,
        "price": price,
    }


def _person(first: str, last: str, born: str) -> dict[str, str]:
    return {"first_name": first, "last_name": last, "dob": born}


def _reservation(
    code: str, cabin: str, legs: list[dict[str, Any]], people: list[dict[str, str]], paid: int, **more: Any
) -> dict[str, Any]:
    return {
        "reservation_id": code,
        "user_id": "lena_brandt_5209",
        "origin": legs[0]["origin"],
        "destination": legs[-1]["destination"],
        "flight_type": "one_way",
        "cabin": cabin,
        "flights": legs,
        "passengers": people,
        "payment_history": [{"payment_id": "credit_card_7120034", "amount": paid}],
        "created_at": "2024-05-03T09:12:41",
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "insurance": "no",
        **more,
    }


_LENA, _TOM = _person("Lena", "Brandt", "1983-02-14"), _person("Tom", "Brandt", "2012-08-09")


def database() -> dict[str, Any]:
    """Return a fresh copy of the whole database."""
    reservations = (
        _reservation("HM93WC", "economy", [_leg("QR318", "2024-05-22", "BOS", "MIA", 91)], [_LENA, _TOM], 182),
        _reservation("R7PD2K", "basic_economy", [_leg("QR101", "2024-05-21", "JFK", "SEA", 70)], [_LENA], 70),
        _reservation(
            "ZK44TB", "economy", [_leg("QR402", "2024-05-27", "SFO", "PEK", 620)], [_LENA], 650, insurance="yes"
        ),
        _reservation("QX81LM", "economy", [_leg("QR310", "2024-05-16", "BOS", "MIA", 98)], [_LENA, _TOM], 196),
    )
    lena = {
        "name": {"first_name": "Lena", "last_name": "Brandt"},
        "address": {
            "address1": "12 Harbour Lane",
            "city": "Boston",
            "country": "USA",
            "province": "MA",
            "zip": "02110",
        },
        "email": "lena.brandt@example.com",
        "dob": "1983-02-14",
        "payment_methods": {
            "credit_card_7120034": {"source": "credit_card", "brand": "visa", "last_four": "4417"},
            "gift_card_2201455": {"source": "gift_card", "amount": 260},
            "certificate_9034411": {"source": "certificate", "amount": 150},
        },
        "saved_passengers": [dict(_TOM)],
        "membership": "silver",
        "reservations": [reservation["reservation_id"] for reservation in reservations],
    }
    return {
        "users": {"lena_brandt_5209": lena},
        "reservations": {reservation["reservation_id"]: reservation for reservation in reservations},
        "flights": {route[0]: _flight(*route) for route in _ROUTES},
    }
