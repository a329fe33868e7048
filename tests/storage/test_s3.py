"""The storage in a bucket: servers that cannot be used, answers that are lost, and what errors say."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import pytest

from quire import S3Storage
from quire.errors import OlderFormat, StorageFailure
from quire.storage.contract import PAGE
from quire.testing.case import id_of, pages, write
from tests.servers.s3_proxy import CarelessServer, serving

obstore = pytest.importorskip("obstore")
from obstore.store import MemoryStore  # noqa: E402


def test_a_store_of_obstore_is_used() -> None:
    store = MemoryStore()
    context = write(S3Storage.over(store, "agents"), "c", *pages([1]))
    storage = S3Storage.over(store, "agents", stale_seconds=0)
    assert (id_of(storage, "c"), [each.key for each in storage.scan(context, PAGE)]) == (context, [1])
    assert all(meta["path"].startswith("agents/") for part in obstore.list(store) for meta in part)
    assert "agents" in repr(storage)


def test_an_older_store_is_refused() -> None:
    store = MemoryStore()
    obstore.put(store, "old/heads/c!", b"head")
    with pytest.raises(OlderFormat):
        S3Storage.over(store, "old", name="an old store")


def unused(endpoint: str, **options: Any) -> S3Storage:
    keys: Any = {"access_key_id": "AKIASECRET", "secret_access_key": "HUSH"}
    return S3Storage("bucket", "team", endpoint=endpoint, probe=False, region="us-east-1", **keys, **options)


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
    ("scheme", "answer", "told"),
    [
        ("http", None, "did not answer"),
        ("http", b"", "did not answer"),
        ("http", b"220 mail\r\n\r\n", "did not answer"),
        ("https", b"HTTP/1.1 400 Bad\r\n\r\n", "TLS"),
        ("http", FORBIDDEN, "403"),
        ("http", NO_BUCKET, "bucket does not exist"),
    ],
    ids=["silent", "closing", "mail", "no TLS", "forbidden", "no bucket"],
)
def test_a_failure_names_bucket_and_endpoint_and_no_credentials(scheme: str, answer: bytes | None, told: str) -> None:
    with answering(answer) as place:
        storage = unused(f"{scheme}://{place}", timeout_seconds=0.2 if answer is None else 30.0)
        with pytest.raises(StorageFailure, match=told) as error:
            storage.load("c")
    assert "s3://bucket/team" in str(error.value)
    assert place in str(error.value)
    assert not any(word in f"{error.value}{storage!r}{vars(storage)!r}" for word in ("HUSH", "AKIASECRET"))


def test_only_a_server_with_conditional_writes_is_accepted() -> None:
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    with serving(CarelessServer("If-None-Match")) as endpoint, pytest.raises(StorageFailure, match="If-None-Match"):
        S3Storage("bucket", endpoint=endpoint, **keys)  # type: ignore[arg-type]
    with serving(CarelessServer()) as endpoint:
        S3Storage("bucket", endpoint=endpoint, **keys).close()  # type: ignore[arg-type]
