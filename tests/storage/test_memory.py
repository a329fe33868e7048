"""The ordered table, compared with a dictionary that is sorted on every read."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from quire.storage.base import PAGE, TALLY
from quire.storage.memory import Row, Table

KEYS = st.integers(0, 12)
GROUPS = st.none() | st.integers(0, 2)
ORDERS = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"b", b"\xff"])
PUTS = st.tuples(st.just("put"), KEYS, GROUPS, ORDERS)
DELETES = st.tuples(st.just("delete"), KEYS, st.none(), st.just(b""))
STEPS = st.lists(PUTS | DELETES, max_size=40)
Step = tuple[str, int, int | None, bytes]
Naive = dict[int, Row[int]]


def apply(steps: list[Step], table: Table[int], naive: Naive) -> None:
    for number, (kind, key, group, order) in enumerate(steps, start=len(naive) * 1_000):
        if kind == "put":
            table.put(PAGE, key, number, group, order)
            naive[key] = Row(number, group, order)
        else:
            table.delete(PAGE, key)
            naive.pop(key, None)


def members(naive: Naive, group: int) -> list[tuple[bytes, int]]:
    return sorted((row.order, key) for key, row in naive.items() if row.group == group)


@given(STEPS, KEYS, KEYS)
def test_a_table_reads_like_a_sorted_dictionary(steps: list[Step], start: int, stop: int) -> None:
    table: Table[int] = Table()
    naive: Naive = {}
    apply(steps, table, naive)
    assert {key: table.get(PAGE, key) for key in range(13)} == {key: naive.get(key) for key in range(13)}
    within = [(key, naive[key]) for key in sorted(naive) if start <= key <= stop]
    assert list(table.scan(PAGE, start, stop, reverse=False)) == within
    assert list(table.scan(PAGE, start, stop, reverse=True)) == within[::-1]
    assert list(table.scan(TALLY, 0, 99, reverse=False)) == []


@given(STEPS, st.integers(0, 2), st.none() | st.tuples(ORDERS, st.integers(-1, 13)))
def test_a_group_lists_like_a_sorted_list(steps: list[Step], group: int, after: tuple[bytes, int] | None) -> None:
    table: Table[int] = Table()
    naive: Naive = {}
    apply(steps, table, naive)
    slots = members(naive, group)
    following = [slot for slot in slots if after is None or slot > after]
    preceding = [slot for slot in slots[::-1] if after is None or slot < after]
    assert [(row.order, key) for key, row in table.members(PAGE, group, after, reverse=False)] == following
    assert [(row.order, key) for key, row in table.members(PAGE, group, after, reverse=True)] == preceding


@given(STEPS, STEPS, st.booleans(), st.integers(0, 6))
def test_a_scan_goes_on_from_where_it_is_whatever_changes(
    before: list[Step], during: list[Step], reverse: bool, pause: int
) -> None:
    table: Table[int] = Table()
    naive: Naive = {}
    apply(before, table, naive)
    scan = table.scan(PAGE, 0, 99, reverse=reverse)
    seen = [key for key, _ in islice(scan, pause)]
    ended = len(seen) < pause
    apply(during, table, naive)
    keys = sorted(naive, reverse=reverse)
    ahead = [key for key in keys if not seen or (key < seen[-1] if reverse else key > seen[-1])]
    assert list(scan) == ([] if ended else [(key, naive[key]) for key in ahead])


@given(STEPS, STEPS, st.booleans(), st.integers(1, 6), st.integers(0, 2))
def test_a_listing_goes_on_from_where_it_is_whatever_changes(
    before: list[Step], during: list[Step], reverse: bool, pause: int, group: int
) -> None:
    table: Table[int] = Table()
    naive: Naive = {}
    apply(before, table, naive)
    listing = table.members(PAGE, group, None, reverse=reverse)
    seen = [(row.order, key) for key, row in islice(listing, pause)]
    apply(during, table, naive)
    rest = [(row.order, key) for key, row in listing]
    ended = len(seen) < pause
    slots = sorted(members(naive, group), reverse=reverse)
    ahead = [slot for slot in slots if not seen or (slot < seen[-1] if reverse else slot > seen[-1])]
    assert rest == ([] if ended else ahead)
