"""Lease: which worker may run a turn on a context, across processes and machines.

A lease is the head of a companion of the context. Its commit is refused if another worker was first, and no lock or
connection is held while a turn runs. A lease expires if a worker that waits for it sees no renewal for some time: no
clock of another machine counts. Commits are safe without any clock: they carry the number of their turn, and the head
of the context has the highest number.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.companion import LEASE, Write, companion_of, write_companion
from quire.errors import Busy, Conflict, QuireError, StorageClosed
from quire.storage.contract import NOTE, Loaded, Storage

LEASE_SECONDS = 25.0
"""A lease expires if a waiter sees no renewal for this time."""
_RENEWALS = 3
"""The number of renewals in the lifetime of a lease."""
_PAUSES = (0.005, 0.1)
"""The shortest and the longest pause between two tries, in seconds."""


class UnfinishedTurn(Struct, frozen=True, array_like=True, gc=False):
    """A turn of a dead worker that must be taken back: its number, and the last entry before it."""

    number: int
    before: int


class LeaseRecord(Struct, frozen=True, array_like=True, gc=False):
    """The lease of a context: the number of the turn, its holder, and when it began, in milliseconds since 1970.

    `before` is the last entry of the context when the turn began. `owed` are turns that the holder must take back.
    `process` identifies the process of the holder on its machine.
    """

    number: int
    holder: str
    since: int
    key: str = ""
    keep: bool = False
    before: int = 0
    released: bool = False
    owed: tuple[UnfinishedTurn, ...] = ()
    process: str = ""


class KeyRecord(Struct, frozen=True, array_like=True, gc=False):
    """The turns with keys of one hash: each key, whether its turn finished, and how many messages it added."""

    turns: tuple[tuple[str, bool, int], ...] = ()


_decoder = msgspec.msgpack.Decoder(LeaseRecord)
_key_decoder = msgspec.msgpack.Decoder(KeyRecord)


class Lease:
    """The lease of one turn, from `acquire` to `release`. A thread of the process renews it."""

    def __init__(
        self, storage: Storage, context: str, record: LeaseRecord, found: Loaded, *, takes_over: bool = False
    ) -> None:
        self._storage = storage
        self._name = companion_of(context, LEASE)
        self._record = record
        self._found = found
        self._lock = threading.Lock()
        self.is_lost = False
        self.takes_over = takes_over
        """True if the previous worker did not release the lease, or did not take back the turns of dead workers."""

    @property
    def number(self) -> int:
        """The number of the turn."""
        return self._record.number

    @property
    def before(self) -> int:
        """The last entry of the context when the turn began."""
        return self._record.before

    @property
    def owed(self) -> tuple[UnfinishedTurn, ...]:
        """The turns of dead workers that must be taken back first."""
        return self._record.owed

    def state_of(self, key: str) -> tuple[bool, int] | None:
        """Return whether the turn with a key finished, and how many messages it added; None if it is unknown."""
        turns = _turns_of(self._storage, self._found, key)
        return next(((finished, added) for known, finished, added in turns if known == key), None)

    def settle(self) -> None:
        """Store that all turns in `owed` were taken back."""
        self._write(owed=())

    def renew(self) -> None:
        """Show waiters that the holder lives. If another worker holds the lease now, set `is_lost`."""
        with suppress(QuireError):  # a storage that fails now may work at the next renewal
            self._write()

    def release(self, *, key: str = "", finished: bool | None = None, added: int = 0) -> None:
        """End the lease; with `finished`, store the state of its key. Raises `Conflict` if it is lost."""
        turns = () if finished is None else ((key, finished, added),)
        self._write(_replace_turns(self._storage, self._found, key, *turns) if key else [], released=True)

    def _write(self, writes: Sequence[Write] = (), **fields: object) -> None:
        with self._lock:
            try:
                self._commit(writes, fields)
            except Conflict:
                found = self._storage.load(self._name)
                record = _decoder.decode(found.head) if found else None
                if found is None or record is None or _turn_of(record) != _turn_of(self._record):
                    self.is_lost = True
                    raise
                self._found, self._record = found, record  # our last write succeeded, its reply was lost
                self._commit(writes, fields)

    def _commit(self, writes: Sequence[Write], fields: dict[str, object]) -> None:
        record = replace(self._record, **fields)
        head = msgspec.msgpack.encode(record)
        self._found = Loaded(*write_companion(self._storage, self._name, self._found, head, writes), head)
        self._record = record


def acquire(
    storage: Storage, context: str, *, key: str, keep: bool, wait: float, newest: Callable[[], tuple[int, int]]
) -> Lease:
    """Take the lease of a context. Wait up to `wait` seconds for its holder, then raise `Busy`.

    `newest` reads the last entry of the context, and the highest number of a turn in its head.
    """
    name = companion_of(context, LEASE)
    deadline = time.monotonic() + wait
    pause, longest = _PAUSES
    while True:
        found = storage.load(name)
        lease = _decoder.decode(found.head) if found else None
        if found is None or lease is None or lease.released or _has_ended(name, lease, found):
            with suppress(Conflict):  # another worker was first
                return _take(storage, context, found, lease, key=key, keep=keep, newest=newest())
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            raise _busy(context, lease)
        time.sleep(min(left, pause * random.uniform(0.5, 1.5)))
        pause = min(longest, pause * 1.5)


def _take(
    storage: Storage,
    context: str,
    found: Loaded | None,
    lease: LeaseRecord | None,
    *,
    key: str,
    keep: bool,
    newest: tuple[int, int],
) -> Lease:
    """Write the lease of a new turn after `lease`. Raises `Conflict` if another worker was first."""
    import socket  # late: most processes take no lease

    before, turn = newest
    record = LeaseRecord(
        max(lease.number if lease else 0, turn) + 1,
        f"{socket.gethostname()} process {os.getpid()} {threading.current_thread().name}",
        now_milliseconds(),
        key,
        keep,
        before,
        owed=_owed_after(lease),
        process=identify_process(),
    )
    head = msgspec.msgpack.encode(record)
    unfinished = _write_unfinished(storage, found, lease)
    place = write_companion(storage, companion_of(context, LEASE), found, head, unfinished)
    is_open = lease is not None and not lease.released
    return Lease(storage, context, record, Loaded(*place, head), takes_over=is_open or bool(record.owed))


_watched: dict[tuple[str, int, str, int], tuple[int, float]] = {}
"""The leases that this process has seen, with their last version and when it saw that first."""
_MOST_WATCHED: Final = 1_000


def _has_ended(name: str, lease: LeaseRecord, found: Loaded) -> bool:
    """Return whether the holder of a lease is dead, or has not renewed it for too long while this process watched."""
    if is_dead(lease.process):
        return True
    now = time.monotonic()
    version, since = _watched.get((name, *_turn_of(lease)), (0, now))
    if version == found.seq:
        return now - since > LEASE_SECONDS
    if len(_watched) >= _MOST_WATCHED:
        _watched.clear()
    _watched[name, *_turn_of(lease)] = found.seq, now
    return False


def _turn_of(lease: LeaseRecord) -> tuple[int, str, int]:
    """Return the fields that identify a turn. The number alone is not unique: it restarts if a context is deleted."""
    return lease.number, lease.holder, lease.since


def _owed_after(lease: LeaseRecord | None) -> tuple[UnfinishedTurn, ...]:
    """Return the turns that the next holder must take back: `lease.owed`, and the turn of this lease if it is open."""
    if lease is None:
        return ()
    return lease.owed if lease.keep or lease.released else (*lease.owed, UnfinishedTurn(lease.number, lease.before))


def _write_unfinished(storage: Storage, found: Loaded | None, lease: LeaseRecord | None) -> list[Write]:
    """Return the write that marks the turn of a dead worker as unfinished, if the turn has a key and `keep`."""
    if found is None or lease is None or lease.released or not lease.keep or not lease.key:
        return []
    return _replace_turns(storage, found, lease.key, (lease.key, False, 0))


def _turns_of(storage: Storage, found: Loaded, key: str) -> tuple[tuple[str, bool, int], ...]:
    record = storage.get(found.id, NOTE, [_hash(key)])[0]
    return _key_decoder.decode(record.value).turns if record else ()


def _replace_turns(storage: Storage, found: Loaded, key: str, *turns: tuple[str, bool, int]) -> list[Write]:
    """Return the write that replaces the turns with a key."""
    others = [turn for turn in _turns_of(storage, found, key) if turn[0] != key]
    left = (*others, *turns)
    return [(NOTE, _hash(key), msgspec.msgpack.encode(KeyRecord(left)) if left else None)]


def _busy(context: str, lease: LeaseRecord) -> Busy:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(lease.since / 1_000))
    turn = f"the turn {lease.key!r}" if lease.key else "a turn"
    return Busy(f"Context {context!r} is in {turn} of {lease.holder} since {since}.")


_identities: dict[int, str] = {}
"""The identity of this process, by its pid. It is read once."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_identities.clear)


def identify_process() -> str:
    """Return a text that identifies this process: the boot id of the machine, the pid namespace, the pid and its start.

    Return "" on a system without these values. There, the lease of a dead process ends only when it expires.
    """
    pid = os.getpid()
    if pid not in _identities and _machine():
        start = _start_time(pid)
        if not start:  # it could not be read now, so it is read again next time
            return f"{_machine()} {pid} "
        _identities.clear()
        _identities[pid] = f"{_machine()} {pid} {start}"
    return _identities.get(pid, "")


def is_dead(process: str) -> bool:
    """Return whether a process of this machine has ended. Nothing is known about processes of other machines."""
    place, _, start = process.rpartition(" ")
    machine, _, mark = place.rpartition(" ")
    if not start or machine != _machine():
        return False
    try:
        os.kill(int(mark), 0)
        return _start_time(int(mark)) not in (start, "")
    except ProcessLookupError:
        return True
    except OSError:
        return False


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return the start time of a process; "-" if it is a zombie, "" if the time is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "-" if fields[0] in "ZX" else fields[19]


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=4).digest())


def now_milliseconds() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class _Renewer:
    """One thread of the process that renews all leases in use."""

    def __init__(self) -> None:
        self._leases: set[Lease] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process = 0

    def add(self, lease: Lease) -> None:
        """Renew a lease until `remove`."""
        with self._changed:
            if self._process != os.getpid():  # threads do not survive a fork
                self._leases, self._thread, self._process = set(), None, os.getpid()
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="quire-leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        with self._changed:
            self._leases.discard(lease)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(LEASE_SECONDS / _RENEWALS)
                if not self._leases:
                    self._thread = None
                    return
                leases = list(self._leases)
            for lease in leases:
                with suppress(StorageClosed):
                    lease.renew()


renewer: Final = _Renewer()
