"""The stores on which turns are tested."""

import os
from pathlib import Path

from quire import Library
from tests.marks import long, servers
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, server

SHARED = ["sqlite", *long("file"), *servers("postgres", "s3")]


def url_of(backend: str, tmp_path: Path) -> str:
    """Return the URL of a new store."""
    match backend:
        case "postgres":
            return postgres_url()
        case "s3":
            there = server()
            os.environ.update(AWS_ACCESS_KEY_ID=there.access_key_id, AWS_SECRET_ACCESS_KEY=there.secret_access_key)
            return f"s3://{there.bucket}/{fresh_prefix()}?endpoint={there.endpoint}&region=us-east-1"
        case "memory":
            return "memory:"
        case _:
            return f"{backend}:{tmp_path / 'store'}"


def texts(library: Library, name: str = "talk") -> list[str]:
    """Return the texts of a conversation, after a check of its context."""
    with library.open(name) as ctx:
        assert ctx.check() == []
        return [message.text for message in ctx.messages()]
