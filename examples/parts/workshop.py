"""A small project, commits that break it, and tools of an agent that fixes it. The tools use real files and tests."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts.scripted_model import schema

PROJECT = {
    "shop/__init__.py": "",
    "shop/cart.py": '''\
"""What is in a cart, and what it costs. All amounts are in cents."""

from shop.discounts import bulk_discount, coupon_discount
from shop.shipping import shipping_cost


class Cart:
    def __init__(self):
        self.lines = []

    def add(self, name, cents, quantity=1):
        self.lines.append((name, cents, quantity))

    def total(self, coupon=""):
        subtotal = sum(cents * quantity for _, cents, quantity in self.lines)
        left = subtotal - bulk_discount(subtotal) - coupon_discount(subtotal, coupon)
        return left + shipping_cost(left)
''',
    "shop/discounts.py": '''\
"""What is taken off a price."""

COUPONS = {"SPRING": 20, "STAFF": 80}


def bulk_discount(subtotal):
    """Five percent from 100.00 on."""
    if subtotal >= 10_000:
        return subtotal * 5 // 100
    return 0


def coupon_discount(subtotal, coupon):
    """What the coupon gives, but never more than half."""
    wanted = subtotal * COUPONS.get(coupon, 0) // 100
    return min(wanted, subtotal // 2)
''',
    "shop/shipping.py": '''\
"""What it costs to send a parcel."""


def shipping_cost(cents):
    """Nothing from 50.00 on."""
    return 0 if cents >= 5_000 else 490


def parcels(pieces):
    """Twelve pieces go into a parcel; the last one may be half empty."""
    return (pieces + 11) // 12
''',
    "tests/__init__.py": "",
    "tests/test_shop.py": """\
import unittest

from shop.cart import Cart
from shop.discounts import bulk_discount, coupon_discount
from shop.shipping import parcels, shipping_cost


class Prices(unittest.TestCase):
    def test_bulk_discount_begins_at_100(self):
        self.assertEqual(bulk_discount(9_999), 0)
        self.assertEqual(bulk_discount(10_000), 500)

    def test_coupon_takes_its_share(self):
        self.assertEqual(coupon_discount(4_000, "SPRING"), 800)

    def test_coupon_takes_no_more_than_half(self):
        self.assertEqual(coupon_discount(4_000, "STAFF"), 2_000)

    def test_no_coupon_takes_nothing(self):
        self.assertEqual(coupon_discount(4_000, ""), 0)

    def test_parcels_are_filled(self):
        self.assertEqual([parcels(12), parcels(13), parcels(30)], [1, 2, 3])

    def test_shipping_is_free_from_50_on(self):
        self.assertEqual([shipping_cost(4_999), shipping_cost(5_000)], [490, 0])

    def test_whole_cart_with_a_tea_pot_and_a_cup(self):
        cart = Cart()
        cart.add("茶壶", 3_900)
        cart.add("茶杯", 550)
        self.assertEqual(cart.total(), 4_940)
""",
}
BUGS = (
    (("shop/discounts.py", "min(", "max("), ("shop/discounts.py", " >= 10_000", " > 10_000")),
    (("shop/shipping.py", " >= 5_000", " > 5_000"), ("shop/shipping.py", " + 11", " - 11")),
    (("shop/cart.py", "left + ", "left - "),),
    (("shop/shipping.py", " // 12", " % 12"), ("shop/discounts.py", "subtotal * 5 //", "subtotal + 5 //")),
)
"""The changes that break the project, one for each round."""


def make_project(folder: Path) -> None:
    """Write the correct project."""
    for path, text in PROJECT.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def break_project(folder: Path, turn: int) -> None:
    """Apply a commit that breaks the project."""
    for path, right, wrong in BUGS[turn % len(BUGS)]:
        text = (folder / path).read_text(encoding="utf-8")
        (folder / path).write_text(text.replace(right, wrong), encoding="utf-8")


class Workshop:
    """The agent's own tools over one folder. Each answers with a text; errors are texts too and are not raised."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = self.edits = 0
        self._tools: dict[str, Callable[..., str]] = {
            "search": self.search,
            "edit_file": self.edit_file,
            "run_tests": self.run_tests,
        }

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools in the form of OpenAI's chat completions."""
        return [
            schema("search", "Find lines of Python with a text.", text="what to look for"),
            schema(
                "edit_file",
                "Replace a text in a file, once. An empty old text writes the whole file.",
                path="the file",
                old="the text that is there",
                new="the text to put there",
            ),
            schema("run_tests", "Run all tests."),
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool."""
        try:
            return self._tools[name](**arguments)
        except (OSError, KeyError, TypeError, ValueError) as error:
            return f"Error: {error}"

    def search(self, text: str) -> str:
        """Return every line that contains the text, with its position."""
        found = [
            f"{path.relative_to(self.folder).as_posix()}:{number}: {line}"
            for path in sorted(self.folder.rglob("*.py"))
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if text in line
        ]
        return "\n".join(found) or f"No line has {text!r}."

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Change a file below the folder."""
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder.resolve()):
            raise ValueError(f"{path} is not below the folder")
        before = file.read_text(encoding="utf-8") if old else ""
        if old and before.count(old) != 1:
            raise ValueError(f"{path} has that text {before.count(old)} times; it has to be there once")
        file.write_text(before.replace(old, new) if old else new, encoding="utf-8")
        self.edits += 1
        return f"Changed {path}."

    def run_tests(self) -> str:
        """Return the numbered output of the tests."""
        self.runs += 1
        command = [sys.executable, "-B", "-m", "unittest"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, encoding="utf-8", check=False)
        told = re.sub(r'File ".*?/(tests/|shop/)', r'File "\1', done.stderr.replace("\\", "/"))
        said = re.sub(r"[-=]{70}\n|Ran (\d+) tests in .*\n", "", told).strip()
        return f"run {self.runs}: {'passed' if done.returncode == 0 else 'failed'}\n{said}"
