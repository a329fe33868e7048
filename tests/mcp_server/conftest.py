"""A context to serve, and one server over HTTP per test process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from quire import Context, Permission, Segment
from tests.mcp_server.clients import address_of

NAME = "支持 42"
URI = "quire://%E6%94%AF%E6%8C%81%2042/"
"""A name that must be percent-encoded."""


def fill(ctx: Context) -> Context:
    """Fill a context: a prompt, a conversation, a note, and a PRIVATE segment."""
    ctx.system("You are a careful travel agent.")
    ctx.user("I want to fly to Seattle.")
    ctx.assistant("On which day?")
    ctx.pages.create_detail_page("座位", "靠窗", "She wants a window seat. 靠窗的座位", "mem-0")
    ctx.pages.add_segment(Segment(id="vault", permission=Permission.PRIVATE))
    ctx.pages.create_detail_page("secret", "", "the secret", "vault-0")
    return ctx


@pytest.fixture(scope="session")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A store, and the URL of a server for it."""
    path = tmp_path_factory.mktemp("mcp") / "store.db"
    fill(quire.open(path, NAME)).close()
    with address_of(path, "--context", NAME) as url:
        yield path, url
