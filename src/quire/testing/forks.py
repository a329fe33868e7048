"""What the contract of forking writes into contexts that come from each other, and how it looks at them."""

from collections.abc import Mapping
from random import Random

from quire.storage.base import (
    BODY,
    FAMILIES,
    IMMUTABLE,
    JOURNAL,
    MAX_GROUP,
    MAX_KEY,
    MESSAGE,
    PAGE,
    Commit,
    Delete,
    Family,
    Head,
    Patch,
    Put,
    Record,
    Storage,
    Write,
)
from quire.testing.case import HEAD, contents, grouped, keys_of, pages, write

GROUPS = [0, 1, 2, MAX_GROUP]
NAMES = ["a", "b", "c", "d", "e"]
MANY = 600
"""More than any backend is likely to fetch at once."""


def do_alike(random: Random, ends: dict[str, int], *storages: Storage) -> None:
    """Write, drop or fork, the same in all storages. Keys of bodies and messages grow from each context's end."""
    name, source = random.sample(NAMES, 2)
    head, origin = (storages[0].head(context) for context in (name, source))
    if random.random() < 0.1:
        for storage in storages:
            storage.drop(name)
        return
    if head or not origin or random.random() < 0.2:
        ends[name] = ends[name] if head else 0
        writes = _some(random, ends[name])
        for storage in storages:
            write(storage, name, *writes)
    else:
        bound = random.randrange(ends[source] + 2)
        below: dict[Family, int] = {BODY: bound, MESSAGE: bound // 2} if random.random() < 0.4 else {}
        ends[name] = bound if below else ends[source]
        writes = _some(random, ends[name])
        for storage in storages:
            storage.fork(source, name, Commit(origin.version, 1, HEAD, writes, HEAD), below)
    ends[name] = max([ends[name], *(each.key + 1 for each in writes if each.family in IMMUTABLE)])


def fill(storage: Storage, context: str) -> None:
    """Three commits: every family, a large group, and more bodies than are fetched at once."""
    write(
        storage,
        context,
        *(Put(family, key, b"%s %d" % (family.encode(), key)) for family in FAMILIES for key in range(6)),
    )
    write(storage, context, *pages(range(10, MANY), group=1), *pages([MANY, MANY + 1], group=2))
    write(storage, context, *(Put(family, key, bytes(key)) for family in (BODY, MESSAGE) for key in range(6, MANY)))


def fork(storage: Storage, source: str, target: str, *writes: Write, below: Mapping[Family, int] | None = None) -> None:
    """Fork the source from wherever it is; the fork is at version 9."""
    head = storage.head(source)
    assert head is not None
    storage.fork(source, target, Commit(head.version, 9, b"fork", writes, head.value), below or {})


def new_records(*keys: int, by: bytes = b"") -> list[Write]:
    """A page in group 1, a body and a message under each key."""
    return [
        each
        for key in keys
        for each in (
            Put(PAGE, key, value_of(key, by), 1, order_of(key)),
            Put(BODY, key, value_of(key, by)),
            Put(MESSAGE, key, value_of(key, by)),
        )
    ]


def deletes(*keys: int) -> list[Write]:
    return [Delete(family, key) for family in (PAGE, BODY, MESSAGE) for key in keys]


def value_of(key: int, by: bytes = b"") -> bytes:
    return b"%s%d" % (by, key)


def order_of(key: int) -> bytes:
    return key.to_bytes(5)


def _some(random: Random, end: int) -> list[Write]:
    """A few writes: to any page, of bodies and messages from `end` on, deletes of anything before."""
    writes: list[Write] = []
    for _ in range(random.randrange(6)):
        key, value = random.randrange(max(end, 9)), random.randbytes(2)
        writes += random.choice(
            [
                [Put(PAGE, key, value, random.choice([None, 1, 2]), value[:1])],
                [Patch(PAGE, key, value)],
                [Delete(PAGE, key), Delete(BODY, key)],
                [Delete(MESSAGE, key)],
                [Put(BODY, end, value), Put(JOURNAL, end, value)],
                [Put(MESSAGE, end, value)],
            ]
        )
        end += 1
    return writes


def state_of(storage: Storage, context: str) -> tuple[Head | None, dict[Family, list[Record]], dict[int, list[int]]]:
    return (*contents(storage, context), grouped(storage, context, GROUPS))


def reads_agree(storage: Storage, context: str) -> None:
    """Every way to read a record finds the same one."""
    for family in FAMILIES:
        records = list(storage.scan(context, family))
        keys = keys_of(records)
        assert keys == sorted(set(keys))
        assert list(storage.scan(context, family, reverse=True)) == records[::-1]
        for key in {*keys[:9], *keys[-9:], *(key + 1 for key in keys[-3:])} - {MAX_KEY + 1}:
            there = [record for record in records if record.key == key]
            assert storage.get(context, family, key) == (there[0] if there else None)
            assert list(storage.scan(context, family, key, key)) == there
        for start, stop in ((1, 4), (2, MANY), (MANY - 2, MAX_KEY), (5, 4)):
            within = [record for record in records if start <= record.key <= stop]
            assert list(storage.scan(context, family, start, stop)) == within
            assert list(storage.scan(context, family, start, stop, reverse=True)) == within[::-1]
