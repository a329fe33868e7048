"""The servers of a comparison, each for one run: PostgreSQL, and S3 behind a proxy that counts requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import rmtree

from bench.compare.sides import MeasureError


@contextmanager
def postgres(*names: str) -> Iterator[list[str]]:
    """Start a server and yield the URLs of new databases with these names. Raises `MeasureError`."""
    import psycopg
    import pytest

    from tests.servers.postgres import new_server

    try:
        server = new_server()
    except pytest.skip.Exception as error:
        raise MeasureError(str(error)) from None
    try:
        with psycopg.connect(server.url(), autocommit=True) as db:
            for name in names:
                db.execute(f'CREATE DATABASE "{name}"')
        yield [server.url(database=name) for name in names]
    finally:
        server.stop()
        rmtree(server.folder, ignore_errors=True)


@contextmanager
def s3() -> Iterator[tuple[dict[str, str], str, list[tuple[str, str]]]]:
    """Yield the environment of clients of an S3 server, a bucket, and the requests so far. Raises `MeasureError`."""
    import pytest

    from tests.servers.s3 import server
    from tests.servers.s3_proxy import Proxy, serving

    try:
        there = server()
    except pytest.skip.Exception as error:
        raise MeasureError(str(error)) from None
    proxy = Proxy(there.endpoint)
    with serving(proxy) as address:
        keys = {"AWS_ACCESS_KEY_ID": there.access_key_id, "AWS_SECRET_ACCESS_KEY": there.secret_access_key}
        yield {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1", **keys}, there.bucket, proxy.seen
