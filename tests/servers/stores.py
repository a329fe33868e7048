"""Addresses of unused stores of every kind, for tests and for the processes that they start."""

import time
from pathlib import Path

import pytest

from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, server


def new_url(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> str:
    """Return the URL of an unused store; `file` and `sqlite` are in the folder. S3 takes options. Memory has one URL.

    The credentials of S3 are in the environment until the test ends.
    """
    if kind == "memory":
        return "memory:"
    if kind == "postgres":
        return postgres_url(schema=f"q{time.time_ns()}")
    if kind != "s3":
        return f"{kind}:{folder / 'store'}"
    there = server()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", there.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", there.secret_access_key)
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"s3://{there.bucket}/{fresh_prefix()}?endpoint={there.endpoint}&region=us-east-1{more}"
