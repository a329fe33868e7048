"""What tokens cost: in plain input tokens, and in money where a price is given."""

from typing import NamedTuple

from quire import Price
from quire.errors import InvalidValue

OUTPUT = 5.0
"""What a token costs that a model writes, in plain input tokens, where nobody says otherwise."""
_FORM = "a number, or INPUT,CACHED,OUTPUT such as 3,0.3,15: what a million tokens cost"


class Rates(NamedTuple):
    """Prices relative to a plain input token, and what a million of those cost if that is known."""

    price: Price = Price()
    output: float = OUTPUT
    million: float | None = None

    def cost(self, plain: int, cached: int, written: int = 0) -> float:
        """What tokens cost, in plain input tokens."""
        return self.price.plain * plain + self.price.read * cached + self.output * written

    def money(self, cost: float) -> float | None:
        """A cost in money, if prices are known."""
        return None if self.million is None else cost * self.million / 1e6


def parse_rates(text: str | None) -> Rates:
    """Rates as they are written on the command line. Raises `InvalidValue`."""
    if text is None:
        return Rates()
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        given = []
    plain, *others = given or [0.0]
    if not 0 < plain < 1e6 or len(others) > 2 or not all(0 <= other < 1e6 for other in others):
        raise InvalidValue(f"price is {text!r}; give {_FORM}.")
    read = others[0] / plain if others else Price().read
    output = others[1] / plain if len(others) == 2 else OUTPUT
    return Rates(Price(read=read), output, plain)
