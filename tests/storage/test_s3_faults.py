"""A server that loses, cuts, delays and refuses requests: every commit happens once or not at all."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random, SystemRandom
from threading import Thread
from typing import NamedTuple

import pytest

import quire
from quire import (
    Busy,
    Conflict,
    Context,
    EstimateCounter,
    InvalidValue,
    OutcomeUnknown,
    QuireError,
    S3Storage,
    StorageFailure,
)
from quire.storage.base import BODY, JOURNAL, Commit, Head, Put
from quire.storage.s3 import client, commit
from quire.testing.case import HEAD, keys_of
from tests.servers.s3 import fresh_prefix, open_s3, server
from tests.servers.s3_proxy import FAULTS, CarelessServer, Fault, Proxy, serving

SEED = int(os.environ.get("QUIRE_SEED") or SystemRandom().getrandbits(32))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between attempts."""
    monkeypatch.setattr(client, "_PAUSES", (0.01, 0.02, 0.04))
    monkeypatch.setattr(commit, "_PAUSES", (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3))


class Stores(NamedTuple):
    """The same store through a proxy and directly."""

    proxy: Proxy
    through: S3Storage
    direct: S3Storage
    prefix: str
    endpoint: str


@pytest.fixture
def stores() -> Iterator[Stores]:
    proxy, prefix = Proxy(server().endpoint), fresh_prefix()
    with serving(proxy) as endpoint:
        through = open_s3(prefix, endpoint=endpoint, probe=False, timeout_seconds=5.0)
        yield Stores(proxy, through, open_s3(prefix), prefix, endpoint)
        through.close()


def break_next(proxy: Proxy, fault: Fault, method: str = "PUT", part: str = "/heads/") -> list[Fault]:
    """Make the next request of a kind fail. The returned list is empty once it did."""
    left = [fault]
    proxy.fault = lambda m, path: left.pop() if left and m == method and part in path else "none"
    return left


@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_without_an_answer_happens_once(stores: Stores, fault: Fault) -> None:
    for version in range(4):
        left = break_next(stores.proxy, fault)
        stores.through.commit("c", Commit(version, version + 1, HEAD, [Put(JOURNAL, version + 1, b"%d" % version)]))
        assert not left
    for late in stores.proxy.late:
        late.join()
    assert stores.direct.head("c") == Head(4, HEAD)
    assert [record.value for record in stores.direct.scan("c", JOURNAL)] == [b"0", b"1", b"2", b"3"]
    assert stores.through.head("c") == Head(4, HEAD)


def test_a_commit_whose_answer_took_too_long_happens_once(stores: Stores) -> None:
    hasty = open_s3(stores.prefix, endpoint=stores.endpoint, probe=False, timeout_seconds=0.6)
    hasty.commit("c", Commit(0, 1, HEAD, ()))
    left = break_next(stores.proxy, "slow")
    hasty.commit("c", Commit(1, 2, HEAD, [Put(JOURNAL, 1, b"x")]))
    assert not left
    assert hasty.head("c") == stores.direct.head("c") == Head(2, HEAD)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_flush_without_an_answer_happens_once(stores: Stores, fault: Fault) -> None:
    stores.through.commit("c", Commit(0, 1, HEAD, [Put(BODY, 0, b"x")]))
    for part in ("/data/", "/heads/"):
        left = break_next(stores.proxy, fault, part=part)
        version = 1 if part == "/data/" else 2
        stores.through.commit("c", Commit(version, version + 1, HEAD, [Put(BODY, version, bytes(100_000))]))
        assert not left
    assert keys_of(stores.direct.scan("c", BODY)) == [0, 1, 2]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_second_writer_gets_conflict_whatever_happens_to_the_answer(stores: Stores, fault: Fault) -> None:
    stores.through.commit("c", Commit(0, 1, HEAD, ()))
    stores.direct.commit("c", Commit(1, 2, b"theirs", [Put(JOURNAL, 2, b"theirs")]))
    break_next(stores.proxy, fault)
    with pytest.raises(Conflict):
        stores.through.commit("c", Commit(1, 2, b"mine", [Put(JOURNAL, 2, b"mine")]))
    for late in stores.proxy.late:
        late.join()
    assert [record.value for record in stores.direct.scan("c", JOURNAL)] == [b"theirs"]


@pytest.mark.parametrize("part", ["/heads/", "/data/", "list-type"])
@pytest.mark.parametrize("fault", ["silent", "cut", "lost", "error"])
def test_reading_is_tried_again(stores: Stores, fault: Fault, part: str) -> None:
    stores.direct.commit("c", Commit(0, 1, HEAD, [Put(BODY, 1, bytes(100_000))]))
    left = break_next(stores.proxy, fault, "GET", part)
    assert list(stores.through.contexts()) == ["c"]
    assert stores.through.get("c", BODY, 1) is not None
    assert not left


def book(storage: S3Storage) -> Context:
    return quire.open(storage, "book", counter=EstimateCounter())


def test_work_goes_on_through_a_bad_line(stores: Stores, request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    random = Random(SEED)
    ctx = book(stores.through)
    in_a_row = 0

    def fault(method: str, path: str) -> Fault:
        """Break every fifth request, but at most two in a row: then a commit has a known outcome."""
        nonlocal in_a_row
        in_a_row = in_a_row + 1 if in_a_row < 2 and random.random() < 0.2 else 0
        return random.choice(FAULTS) if in_a_row else "none"

    stores.proxy.fault = fault
    names = [f"页 {number}" for number in range(600 if long else 40)]
    for name in names:
        ctx.pages.create_detail_page(name, "", f"text of {name} " * random.choice([1, 40, 4_000]), "mem-0")
    stores.proxy.fault = lambda method, path: "none"
    for late in stores.proxy.late:
        late.join()
    found = book(stores.direct)
    assert [page.name for page in found.pages.children("mem-0")] == names, f"QUIRE_SEED={SEED}"
    assert [entry.seq for entry in found.pages.history()] == list(range(1, found.seq + 1))
    assert found.check() == []


def test_an_outcome_that_cannot_be_had_is_called_unknown_and_found_later(stores: Stores) -> None:
    ctx = book(stores.through)
    ctx.pages.create_detail_page("first", "", "x", "mem-0")
    gone: list[str] = []

    def away(method: str, path: str) -> Fault:
        """The write arrives, and no request after it."""
        if gone:
            return "lost"
        gone.append(path)
        return "silent"

    stores.proxy.fault = away
    with pytest.raises(OutcomeUnknown):
        ctx.pages.create_detail_page("second", "", "x", "mem-0")
    with pytest.raises(StorageFailure):
        ctx.pages.create_detail_page("third", "", "x", "mem-0")
    stores.proxy.fault = lambda method, path: "none"
    ctx.pages.create_detail_page("fourth", "", "x", "mem-0")
    assert [page.name for page in book(stores.direct).pages.children("mem-0")] == ["first", "second", "fourth"]


def test_a_write_refused_because_of_itself_is_not_a_failure(stores: Stores) -> None:
    """The first attempt arrives late, the second one is refused because of it, then the server is unavailable."""
    stores.through.commit("c", Commit(0, 1, HEAD, ()))
    script: list[Fault] = ["late", "none", "none"]

    def fault(method: str, path: str) -> Fault:
        if len(script) == 1:
            for late in stores.proxy.late:
                late.join()
        return script.pop(0) if script else "lost"

    stores.proxy.fault = fault
    with pytest.raises(OutcomeUnknown):
        stores.through.commit("c", Commit(1, 2, HEAD, [Put(JOURNAL, 2, b"mine")]))
    assert stores.direct.head("c") == Head(2, HEAD)


def test_an_overloaded_server_is_busy(stores: Stores) -> None:
    stores.through.commit("c", Commit(0, 1, HEAD, ()))
    stores.proxy.fault = lambda method, path: "busy"
    with pytest.raises(Busy, match="overloaded"):
        stores.through.head("c")
    stores.proxy.fault = lambda method, path: "busy" if "/data/" in path else "none"
    with pytest.raises(Busy, match="503"):
        stores.through.commit("c", Commit(1, 2, HEAD, [Put(BODY, 1, bytes(100_000))]))
    stores.proxy.fault = lambda method, path: "none"
    assert stores.through.head("c") == Head(1, HEAD)


def test_the_requests_counted_are_the_requests_sent(stores: Stores) -> None:
    ctx = book(stores.through)
    for number in range(30):
        ctx.user(f"消息 {number} " * (number * 40))
    storage = stores.through
    storage.compact("book")
    storage.collect("book", grace_seconds=0)
    assert list(storage.contexts()) == ["book"]
    storage.fork("book", "copy", Commit(ctx.seq, 9, HEAD, ()), {})
    storage.drop("copy")
    assert sum(storage.objects.requests.values()) == len(stores.proxy.seen)


def test_a_server_that_is_away_is_named_without_the_credentials() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    storage = S3Storage(
        "bucket", "team", endpoint=endpoint, probe=False, access_key_id="AKIASECRET", secret_access_key="HUSH"
    )
    for call in (lambda: storage.head("c"), lambda: list(storage.contexts()), lambda: storage.drop("c")):
        named = f"s3://bucket/team at {endpoint}: the server could not be reached .*connection refused"
        with pytest.raises(StorageFailure, match=named) as error:
            call()
        assert not any(word in str(error.value) for word in ("HUSH", "AKIASECRET"))
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
    with pytest.raises(StorageFailure):
        storage.commit("c", Commit(0, 1, HEAD, ()))
    assert "HUSH" not in f"{storage!r}{storage.objects!r}{vars(storage)!r}"


@contextmanager
def answering(data: bytes | None) -> Iterator[str]:
    """Listen and answer every request with these bytes, or not at all."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    kept.append(one)
                    if data is not None:
                        one.recv(65_536)
                        one.sendall(data)
                        one.close()

        Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for one in kept:
            one.close()


FORBIDDEN = b"HTTP/1.1 403 No\r\nContent-Length: 49\r\n\r\n<Code>AccessDenied</Code><Message>HUSH</Message>  "
NO_BUCKET = b"HTTP/1.1 404 No\r\nContent-Length: 25\r\n\r\n<Code>NoSuchBucket</Code>"


@pytest.mark.parametrize(
    ("scheme", "answer", "reason"),
    [
        ("http", None, "timeout"),
        ("http", b"", "connection closed"),
        ("http", b"220 mail\r\n\r\n", "does not speak HTTP"),
        ("https", b"HTTP/1.1 400 Bad\r\n\r\n", "does not speak TLS"),
        ("http", FORBIDDEN, r"denied \(403 AccessDenied\)"),
        ("http", NO_BUCKET, "the bucket does not exist"),
    ],
)
def test_a_failure_names_bucket_endpoint_and_reason(scheme: str, answer: bytes | None, reason: str) -> None:
    limit = 0.2 if reason == "timeout" else 30.0
    with answering(answer) as place:
        endpoint = f"{scheme}://{place}"
        storage = S3Storage(
            "bucket",
            endpoint=endpoint,
            probe=False,
            access_key_id="a",
            secret_access_key="HUSH",
            timeout_seconds=limit,
        )
        with pytest.raises(StorageFailure, match=f"s3://bucket at {endpoint}: .*{reason}") as error:
            storage.head("c")
    assert "HUSH" not in str(error.value)


def test_an_unknown_host_is_reported() -> None:
    place = "http://nowhere.invalid"
    storage = S3Storage("bucket", endpoint=place, probe=False, access_key_id="a", secret_access_key="b")
    with pytest.raises(StorageFailure, match=r"s3://bucket at http://nowhere.invalid: .*no such host"):
        storage.head("c")


def test_wrong_credentials_are_reported_and_not_shown() -> None:
    with pytest.raises(StorageFailure, match=r"denied \(403 SignatureDoesNotMatch\)") as error:
        open_s3(fresh_prefix(), secret_access_key="WRONG-SECRET", probe=False).head("c")
    assert "WRONG-SECRET" not in str(error.value)


# The check of conditional writes


@pytest.mark.parametrize("ignored", ["If-None-Match", "If-Match"])
def test_a_server_that_ignores_conditions_is_refused(ignored: str) -> None:
    with serving(CarelessServer(ignored)) as endpoint, pytest.raises(StorageFailure, match=f"ignores {ignored}"):
        S3Storage("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b")


def test_a_server_that_refuses_every_replacement_is_refused() -> None:
    with serving(CarelessServer("refuses all")) as endpoint, pytest.raises(StorageFailure, match="matching If-Match"):
        S3Storage("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b")


def test_a_server_is_tried_once_a_process_and_bucket() -> None:
    proxy = Proxy(server().endpoint)
    with serving(proxy) as endpoint:
        sent = []
        for prefix in (fresh_prefix(), fresh_prefix()):
            before = len(proxy.seen)
            open_s3(prefix, endpoint=endpoint).close()
            sent.append(len(proxy.seen) - before)
            assert not list(open_s3(prefix).objects.list("probes"))
    assert sent == [5, 0]


def test_a_server_with_conditional_writes_is_accepted() -> None:
    with serving(CarelessServer()) as endpoint:
        S3Storage("bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b").close()


# URLs and the extra


def test_without_the_extra_the_error_is_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(QuireError, match=r"pip install .*\[s3\]'"):
        quire.open_storage("s3://bucket/prefix")


def test_a_url_opens_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    there = server()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", there.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", there.secret_access_key)
    url = f"s3://{there.bucket}/{fresh_prefix()}/队".replace("/队", "/team-1")
    url = f"{url}?endpoint={there.endpoint}&region=us-east-1"
    with pytest.raises(StorageFailure, match="There is no store at"):
        quire.open_storage(url, create=False)
    with quire.open(url, "代理") as ctx:
        ctx.user("你好")
    with quire.Library(url, create=False) as library:
        assert list(library.list()) == ["代理"]
        assert [message.text for message in library.open("代理").messages()] == ["你好"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", there.endpoint)
    with quire.Library(url.partition("?")[0]) as library:
        assert library.exists("代理")


@pytest.mark.parametrize(
    ("url", "argument", "part"),
    [
        ("s3://", "bucket", "''"),
        ("s3:bucket", "bucket", "''"),
        ("s3://UPPER/x", "bucket", "UPPER"),
        ("s3://bucket/a//b", "prefix", "a//b"),
        ("s3://bucket/../b", "prefix", "b"),
        ("s3://bucket/中文", "prefix", "中文"),
        (f"s3://bucket/{'x' * 200}", "prefix", "160"),
        ("s3://bucket/x?colour=red", None, "'colour'"),
        ("s3://bucket/x?endpoint=ftp://host", "endpoint", "https://host"),
        ("s3://bucket/x?grace_seconds=soon", "grace_seconds", "'soon'"),
        ("s3://bucket/x?upkeep=never", "upkeep", "'never'"),
        ("s3://bucket/x?timeout_seconds=0", "timeout_seconds", "is 0"),
        ("s3://AKIAX:HUSH@bucket/x", None, "must not contain credentials"),
        ("s3://bucket/x?secret_access_key=HUSH", None, "must not contain credentials"),
        ("s3://bucket/x?endpoint=http://u:HUSH@host", "endpoint", "without credentials"),
    ],
)
def test_an_invalid_url_is_refused_without_quoting_a_secret(url: str, argument: str | None, part: str) -> None:
    with pytest.raises(InvalidValue, match=part) as error:
        quire.open_storage(url)
    assert error.value.argument == argument
    assert "HUSH" not in str(error.value)
