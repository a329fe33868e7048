"""Addresses: no error and no log repeats a secret of an address, valid or not."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import quire
from quire import InvalidValue, QuireError, open_storage
from quire.cli import main
from quire.storage.paths import is_address, mask_secrets
from quire.storage.postgres.address import parse
from quire.storage.urls import mask_address

PIECES = ("hUntErA", "hUntErB", "hUntErC")
FORMS = (
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1:1/db?tenant=a",
    "postgresql://me:{}@127.0.0.1:1/db?nonsense=1",
    "postgresql://:{}@127.0.0.1:1",
    "POSTGRES://me:{}@[::1]:1/db",
    "postgresql://127.0.0.1:1/db?user=me&password={}",
    "postgresql://127.0.0.1:1/db?password={}&tenant=a",
    "postgresql://127.0.0.1:1?password={}",
    "postgresql://127.0.0.1:1/db?sslpassword={}&nonsense=1",
    "postgresql+psycopg://me:{}@127.0.0.1:1/db",
    "postgresql:me:{}@127.0.0.1/db",
    " postgresql://me:{}@127.0.0.1:1/db",
    "DATABASE_URL=postgresql://me:{}@127.0.0.1:1/db",
    "PGPASSWORD={}",
    "PGPASSWORD={} host=127.0.0.1",
    "host=127.0.0.1 port=1 password={}",
    "host=127.0.0.1 port=1 password = '{}' user=me",
    "password={} host=127.0.0.1",
    "mysql://me:{}@127.0.0.1/db",
    "https://me:{}@127.0.0.1/db",
    "s3://key:{}@bucket/prefix",
    "s3://bucket/key:{}@prefix",
    "S3://bucket/prefix?secret_access_key={}",
    "s3://bucket/prefix?access_key_id=a&SecretAccessKey={}",
    "s3://bucket/prefix?endpoint=http://key:{}@127.0.0.1:1",
    "s3://bucket/prefix?session_token={}&endpoint=http://127.0.0.1:1",
    "AWS_SECRET_ACCESS_KEY={}",
    "sqlite:postgresql://me:{}@127.0.0.1:1/db",
    "file:postgresql://me:{}@127.0.0.1:1/db",
    "sqlite:password={}",
)
WITHOUT_A_HOST = ("postgresql://me:{}", "postgresql://me:{}/db", "s3://key:{}/bucket", "S3://key:{}")
"""An @ in the password makes its end look like a host; this cannot be detected."""

secrets = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=3), min_size=2, max_size=2).map(
    lambda between: PIECES[0] + between[0] + PIECES[1] + between[1] + PIECES[2]
)
addresses = st.one_of(
    st.builds(str.replace, st.sampled_from(FORMS), st.just("{}"), secrets),
    st.builds(
        str.replace, st.sampled_from(WITHOUT_A_HOST), st.just("{}"), secrets.filter(lambda text: "@" not in text)
    ),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return tmp_path


def told(call: Callable[[], Any]) -> str:
    """Return the whole text of the error of a call, including its causes."""
    try:
        found = call()
    except QuireError as error:
        shown = "".join(traceback.format_exception_only(error)) + repr(error)
        cause: BaseException | None = error
        while cause is not None:
            shown += f"{cause}{cause!r}"
            cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        return shown
    raise AssertionError(f"it was opened: {found!r}")


def without_secrets(text: str) -> bool:
    return not any(piece in text for piece in PIECES)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("postgresql://me:hUntErA#hUntErB@127.0.0.1:1/db")
@example("postgresql://me:hUntErA/hUntErB@127.0.0.1:1/db")
@example("postgresql://me:hUntErA@hUntErB@127.0.0.1:1/db")
@example("postgresql://me:hUntErA@hUntErB/hUntErC@127.0.0.1:1/db")
@example("postgresql://127.0.0.1:1/db?password=hUntErA&hUntErB=1")
@example("postgresql://me:12/hUntErA?hUntErB=1@127.0.0.1:1/db")
@given(addresses)
def test_a_secret_is_repeated_nowhere(here: Path, caplog: pytest.LogCaptureFixture, capfd: Any, where: str) -> None:
    caplog.set_level(logging.DEBUG)
    said = told(lambda: open_storage(where, create=False)) + mask_address(where) + mask_secrets(where)
    said += told(lambda: quire.backup("there.db", where))
    assert main(["ls", where]) in (1, 2)
    assert main(["stats", where, "--json"]) in (1, 2)
    out, err = capfd.readouterr()
    assert without_secrets(said + caplog.text + out + err)
    assert list(here.iterdir()) == []


def test_a_password_of_odd_signs_reaches_the_driver_as_it_is() -> None:
    from psycopg.conninfo import conninfo_to_dict

    for password in ("a#b", "a?b", "a@b", "a:b", "a&b=c", "a@b@c", "密码"):
        made = conninfo_to_dict(parse(f"postgresql://me:{password}@host:5432/db?tenant=x&sslmode=require").url)
        assert made == {
            "user": "me",
            "password": password,
            "host": "host",
            "port": "5432",
            "dbname": "db",
            "sslmode": "require",
        }
    assert conninfo_to_dict(parse("postgresql://host/db?password=a+b%20c").url)["password"] == "a+b c"


def test_a_password_that_cuts_the_url_apart_is_refused_with_how_to_write_it() -> None:
    with pytest.raises(InvalidValue, match="/ %2F"):
        open_storage("postgresql://me:a/b@host/db")
    with pytest.raises(InvalidValue, match="@ is written %40"):
        open_storage("postgresql://me:secret/db")


@pytest.mark.parametrize("url", ["postgresql://h/db?sslmod=require", "postgresql://h/db?tenant=a&sslmod=1&password=x"])
def test_an_unknown_option_of_postgresql_is_named_with_those_there_are(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"'sslmod'. Did you mean 'sslmode'\? Options: tenant, schema, .*sslmode"):
        open_storage(url)


def test_an_unknown_option_of_s3_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match=r"'regio'.*region"):
        open_storage("s3://bucket/prefix?regio=x")


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("agent.db", "agent.db"),
        ("笔记/代理.db", "笔记/代理.db"),
        ("sqlite:/home/me@home/a:b.db", "sqlite:/home/me@home/a:b.db"),
        ("file:notes", "file:notes"),
        ("postgresql://ada:pw@db:5432/agents?tenant=x", "postgresql://ada@db:5432/agents?tenant=x"),
        ("postgresql://db/agents?user=ada&password=pw&tenant=x", "postgresql://db/agents?user=ada&tenant=x"),
        ("postgresql://ada:p/w@db/agents", "postgresql://…"),
        ("S3://bucket/prefix?region=x", "s3://bucket/prefix?region=x"),
        ("mysql://ada:pw@db", "mysql://…"),
    ],
)
def test_an_address_is_shown_as_far_as_it_is_understood(where: str, shown: str) -> None:
    assert mask_address(where) == shown


def test_schemes_are_read_in_capitals_too(tmp_path: Path) -> None:
    open_storage(f"SQLite:{tmp_path / 'notes.db'}").close()
    open_storage(f"FILE:{tmp_path / 'notes'}").close()
    open_storage("Memory:").close()
    assert {path.name for path in tmp_path.iterdir()} >= {"notes.db", "notes"}


def test_an_address_given_as_a_path_makes_no_file(here: Path) -> None:
    for where in (Path("postgresql://me:pw@host/db"), "host=db password=pw", Path("s3://bucket/prefix")):
        with pytest.raises(InvalidValue, match="give memory:"):
            open_storage(where)
    for call in (quire.SQLiteStorage, quire.FileStorage, quire.Library("memory:").import_):
        with pytest.raises(InvalidValue, match=r"path is 'postgresql://…'"):
            call("postgresql://me:pw@host/db")
    assert list(here.iterdir()) == []
    assert not is_address("./token=7/agent.db")
