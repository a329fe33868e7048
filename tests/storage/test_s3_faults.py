"""A server that loses, cuts, delays and refuses requests: every commit happens once or not at all."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

import quire
from quire import Busy, Conflict, Context, EstimateCounter, Library, OutcomeUnknown, S3Storage, StorageFailure
from tests.seeds import SEED
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.servers.s3_proxy import FAULTS, Fault, Proxy, serving

pytestmark = pytest.mark.servers


class Stores(NamedTuple):
    """The same store through a proxy and directly."""

    proxy: Proxy
    through: S3Storage
    direct: S3Storage


@pytest.fixture
def stores() -> Iterator[Stores]:
    proxy, prefix = Proxy(server().endpoint), fresh_prefix()
    with serving(proxy) as endpoint:
        through = open_s3(prefix, endpoint=endpoint, probe=False, timeout_seconds=2.0)
        yield Stores(proxy, through, open_s3(prefix))
        through.close()


def book(storage: S3Storage) -> Context:
    return quire.open(storage, "book", counter=EstimateCounter())


def texts(storage: S3Storage) -> list[str]:
    """Return the texts of the messages in the store, which is whole."""
    ctx = book(storage)
    assert ctx.check() == []
    assert [entry.seq for entry in ctx.history()] == list(range(1, ctx.seq + 1))
    return [message.text for message in ctx.messages()]


def break_next(proxy: Proxy, fault: Fault, *methods: str) -> list[Fault]:
    """Make the next request of these kinds fail. The returned list is empty once it did."""
    left = [fault]
    proxy.fault = lambda method, path: left.pop() if left and method in methods else "none"
    return left


def settle(proxy: Proxy) -> None:
    """End the faults and wait for the requests that arrive late."""
    proxy.fault = lambda method, path: "none"
    for late in proxy.late:
        late.join()


@pytest.mark.parametrize("fault", [*FAULTS, "slow"])
def test_a_commit_without_an_answer_happens_once(stores: Stores, fault: Fault) -> None:
    ctx = book(stores.through)
    said = [f"{number} " * (40_000 if number == 1 else 1) for number in range(3)]  # a large one is more than one object
    for text in said:
        left = break_next(stores.proxy, fault, "PUT")
        ctx.user(text)
        assert not left
    settle(stores.proxy)
    assert texts(stores.direct) == texts(stores.through) == said


@pytest.mark.parametrize("fault", FAULTS)
def test_the_second_writer_gets_conflict_whatever_happens_to_the_answer(stores: Stores, fault: Fault) -> None:
    ctx, other = book(stores.through), book(stores.direct)
    other.refresh()
    other.user("theirs")
    break_next(stores.proxy, fault, "PUT")
    with pytest.raises(Conflict):
        ctx.user("mine")
    settle(stores.proxy)
    assert texts(stores.direct) == ["theirs"]


@pytest.mark.parametrize("fault", ["silent", "cut", "lost", "error"])
def test_reading_is_tried_again(stores: Stores, fault: Fault) -> None:
    book(stores.direct).user("hello " * 20_000)
    left = break_next(stores.proxy, fault, "GET")
    assert list(Library(stores.through).list()) == ["book"]
    assert not left
    left = break_next(stores.proxy, fault, "GET")
    assert len(book(stores.through).messages()[0].text) == 120_000
    assert not left


def test_work_goes_on_through_a_bad_line(stores: Stores, request: pytest.FixtureRequest) -> None:
    random, ctx, in_a_row = Random(SEED), book(stores.through), 0

    def fault(method: str, path: str) -> Fault:
        """Break every fifth request, but at most two in a row: then a commit has a known outcome."""
        nonlocal in_a_row
        in_a_row = in_a_row + 1 if in_a_row < 2 and random.random() < 0.2 else 0
        return random.choice(FAULTS) if in_a_row else "none"

    stores.proxy.fault = fault
    names = [f"页 {number}" for number in range(600 if request.config.getoption("--long") else 12)]
    for name in names:
        ctx.pages.create_detail_page(name, "", f"text of {name} " * random.choice([1, 40, 4_000]), "mem-0")
    settle(stores.proxy)
    assert [page.name for page in book(stores.direct).pages.children("mem-0")] == names
    assert texts(stores.direct) == []


def test_an_outcome_that_cannot_be_had_is_called_unknown_and_found_later(stores: Stores) -> None:
    ctx = book(stores.through)
    ctx.user("first")
    gone: list[str] = []

    def away(method: str, path: str) -> Fault:
        """The write arrives, and no request after it."""
        if gone:
            return "lost"
        if method == "PUT":
            gone.append(path)
            return "silent"
        return "none"

    stores.proxy.fault = away
    with pytest.raises(OutcomeUnknown):
        ctx.user("second")
    with pytest.raises(StorageFailure):
        ctx.user("third")
    settle(stores.proxy)
    ctx.user("fourth")
    assert texts(stores.direct) == ["first", "second", "fourth"]


def test_an_overloaded_server_is_busy(stores: Stores) -> None:
    ctx = book(stores.through)
    stores.proxy.fault = lambda method, path: "busy"
    with pytest.raises(Busy):
        ctx.refresh()
    with pytest.raises((Busy, OutcomeUnknown)):  # a first attempt that was refused may have been made
        ctx.user("hello")
    settle(stores.proxy)
    ctx.user("hello again")
    assert texts(stores.direct) == ["hello again"]
