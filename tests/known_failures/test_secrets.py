"""A secret that `redact` removes from a plain text is removed wherever it comes in."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Context, QuireError, ToolCall
from tests.known_failures import fails, until_step

SECRET = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCD"
LINE = f'data: {{"key": "{SECRET}"}}'
"""A line of an event stream, as a tool returns it."""

_CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}
_OPENAI_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
_STORED = "the secret is stored, or sent"


def _leaks(folder: Path, act: Callable[[Context], object]) -> list[str]:
    """Return where the secret is after an action on a context with `redact`."""
    ctx = quire.open(folder / "a.db", "m", redact=quire.redact_secrets, budget=2_000)
    act(ctx)
    forms = [ctx.render(preview=True).openai(), ctx.render(preview=True).anthropic()]
    shown = SECRET in str([*forms, ctx.messages(), list(ctx.history())])
    ctx.close()
    files = [path.name for path in folder.iterdir() if SECRET.encode() in path.read_bytes()]
    return files + ["view"] * shown


def _text(role: str, text: str, **fields: object) -> dict[str, Any]:
    """Return a message of one part."""
    return {"role": role, "content": [{"type": "text", "text": text, **fields}]}


def _part(kind: str, **fields: object) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": kind, **fields}]}


def _source(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "media_type": "text/plain", "data": text}


def _case(name: str, *messages: object) -> Any:
    return pytest.param(messages, id=name)


def _leak(name: str, *messages: object) -> Any:
    return fails(messages, step=7, why=_STORED, id=name)


_ARRIVING = [
    _case("text", {"role": "user", "content": SECRET}),
    _case("stream as text", {"role": "user", "content": LINE}),
    _case("part", _text("user", SECRET)),
    _leak("stream as part", _text("user", LINE)),
    _leak("stream as result", _OPENAI_CALL, {**_text("tool", LINE), "tool_call_id": "c1"}),
    _leak(
        "stream as nested part", _CALL, _part("tool_result", tool_use_id="t1", content=[{"type": "text", "text": LINE}])
    ),
    _case("stream as nested text", _CALL, _part("tool_result", tool_use_id="t1", content=LINE)),
    _case(
        "stream as output",
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": LINE},
    ),
    _case("custom call", {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": LINE}),
    _leak("part with a signature", _text("user", SECRET, signature="x")),
    _leak("part with a thought signature", _text("assistant", SECRET, thought_signature="x")),
    _leak(
        "call with a signature",
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"k": SECRET}, "thought_signature": "x"},
            ],
        },
    ),
    _leak("field detail", {"role": "user", "content": "x", "detail": SECRET}),
    _leak("field format", {"role": "user", "content": "x", "format": SECRET}),
    _case("other field", {"role": "user", "content": "x", "zz": SECRET}),
    _leak("name of a field", {"role": "user", "content": "x", SECRET: "zz"}),
    _leak("name of a field of a part", _text("user", "x", **{SECRET: "zz"})),
    _leak("document as data", _part("document", source=_source("base64", SECRET))),
    _case("document as text", _part("document", source=_source("text", SECRET))),
    _leak("file as text", _part("file", file={"filename": "a.env", "file_data": "data:text/plain," + SECRET})),
    _case("address of a picture", _part("image_url", image_url={"url": "https://x/?key=" + SECRET})),
    _case("speaker", {"role": "user", "content": "x", "name": SECRET}),
]


@pytest.mark.parametrize("messages", _ARRIVING)
def test_a_message_that_arrives_has_no_secret(messages: tuple[Any, ...], tmp_path: Path) -> None:
    assert _leaks(tmp_path, lambda ctx: [ctx.add(message) for message in messages]) == []


@until_step(7, _STORED)
def test_a_message_that_is_imported_has_no_secret(tmp_path: Path) -> None:
    assert _leaks(tmp_path, lambda ctx: ctx.import_messages([_text("user", LINE)])) == []


@until_step(7, _STORED)
def test_a_message_that_replaces_another_has_no_secret(tmp_path: Path) -> None:
    assert _leaks(tmp_path, lambda ctx: (ctx.user("x"), ctx.replace(0, _text("user", LINE)))) == []


@pytest.mark.parametrize(
    "arguments",
    [
        fails('{"k":"%s","k":"x"}', step=7, why="the first of two equal keys is stored", id="equal keys"),
        '{"k":"%s"}',
        '{"%s":1}',
        '{"k":"%s',
    ],
)
def test_the_arguments_of_a_call_have_no_secret(arguments: str, tmp_path: Path) -> None:
    call = ToolCall("c1", "f", arguments % SECRET)
    assert _leaks(tmp_path, lambda ctx: ctx.assistant(None, tool_calls=[call])) == []


def _turn(ctx: Context) -> None:
    with ctx.turn(key=SECRET):
        ctx.user("y")


def _agent_note(ctx: Context) -> None:
    ctx.as_agent(SECRET).create_detail_page(SECRET, SECRET, SECRET, "mem-0")


def _tools(ctx: Context) -> None:
    for name, arguments in (
        ("write_page", {"name": SECRET, "text": SECRET}),
        ("find", {"query": SECRET}),
        ("read_page", {"page": SECRET}),
        (SECRET, {}),
    ):
        ctx.tools.call(name, arguments)


@pytest.mark.parametrize(
    "act",
    [
        fails(lambda ctx: ctx.user("x", id=SECRET), step=7, why=_STORED, id="id of a message"),
        fails(_turn, step=7, why=_STORED, id="key of a turn"),
        pytest.param(lambda ctx: ctx.checkpoint(SECRET), id="checkpoint"),
        pytest.param(_agent_note, id="agent and note"),
        pytest.param(_tools, id="tools"),
    ],
)
def test_no_name_has_a_secret(act: Callable[[Context], object], tmp_path: Path) -> None:
    assert _leaks(tmp_path, act) == []


@pytest.mark.parametrize(
    "make",
    [
        fails(lambda library: library.open("m").fork(SECRET), step=7, why=_STORED, id="fork of a context"),
        fails(lambda library: library.fork("m", SECRET), step=7, why=_STORED, id="fork of a library"),
        pytest.param(lambda library: library.create(SECRET), id="create"),
        pytest.param(lambda library: library.open(SECRET), id="open"),
        pytest.param(lambda library: library.turn(SECRET).__enter__(), id="turn"),
    ],
)
def test_no_context_has_a_secret_as_its_name(make: Callable[[quire.Library], object], tmp_path: Path) -> None:
    with quire.Library(tmp_path / "a.db", redact=quire.redact_secrets) as library:
        library.create("m").close()
        with suppress(QuireError):
            make(library)
        assert [name for name in library.list() if SECRET in name] == []


_QUOTES = "the error quotes the text"


@pytest.mark.parametrize(
    "call",
    [
        fails(lambda ctx: ctx.undo(SECRET), step=7, why=_QUOTES, id="undo"),
        fails(lambda ctx: ctx.render(**{SECRET: 1}), step=7, why=_QUOTES, id="option"),
        pytest.param(lambda ctx: ctx.pages.get_page("mem-" + SECRET), id="page"),
        pytest.param(lambda ctx: ctx.rollback(SECRET), id="checkpoint"),
    ],
)
def test_no_error_quotes_a_secret(call: Callable[[Context], object]) -> None:
    ctx = quire.open("memory:", redact=quire.redact_secrets)
    with pytest.raises(QuireError) as raised:
        call(ctx)
    assert SECRET not in str(raised.value)


_SOME = "only some forms are known"


@pytest.mark.parametrize(
    "text",
    [
        fails("password = hunter2hunter2", step=7, why=_SOME),
        fails("Server=db;User=u;Pwd=hunter2hunter2;", step=7, why=_SOME),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.hunter2hunter2hunter2",
    ],
)
def test_the_usual_forms_of_secrets_are_known(text: str) -> None:
    assert "hunter2" not in quire.redact_secrets(text)
