"""`redact=`: what it removes is nowhere, whatever way it comes in."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
import quire.aio
import quire.server
from quire import redact_secrets
from quire.adapters.sync_list import ListSync
from quire.cli import main
from quire.providers import parse
from tests.whole_values import whole_repr

SECRET = "hunter2hunter2"
MARK = "[removed]"


def redact(text: str) -> str:
    return text.replace(SECRET, MARK)


def call(arguments: str = "{}", name: str = "c1") -> dict[str, Any]:
    call = {"id": name, "type": "function", "function": {"name": "read", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Note(quire.App):
    """An app with the secret in everything that it shows and stores."""

    name = "note"
    description = f"A note with {SECRET}"

    def open(self) -> None:
        self.value = SECRET

    def render(self) -> str:
        return f"The value is {SECRET}."

    def save(self) -> dict[str, str]:
        return {"value": SECRET}

    def load(self, saved: dict[str, str]) -> None:
        self.value = saved["value"]


def fill(ctx: quire.Context, folder: Path) -> None:
    """Bring the secret in, in every way."""
    ctx.system(f"The password is {SECRET}")
    ctx.user(f"It is {SECRET}")
    ctx.assistant(f"So it is {SECRET}")
    ctx.add({"role": "user", "name": f"bob-{SECRET}", "content": [{"type": "text", "text": f"Again {SECRET}"}]})
    ctx.add({"role": "user", "content": "Hm", "x_note": {"deep": [SECRET]}})  # kept in the original
    ctx.add(call(json.dumps({"password": SECRET, SECRET: ["x", SECRET]})))
    ctx.tool_result("c1", {"password": SECRET})
    ctx.add(quire.Message(role="user", content=f"Own {SECRET}", meta={"about": SECRET}))
    ctx.add({"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Item {SECRET}"}]})
    ctx.import_messages([{"role": "user", "content": f"Imported {SECRET}"}, {"what": f"unreadable {SECRET}"}, SECRET])
    ctx.conversation.insert({"role": "user", "content": f"Inserted {SECRET}"})
    ctx.conversation.replace(1, {"role": "user", "content": f"Replaced {SECRET}"})
    ctx.conversation.modify([{"operation": "insert", "data": {"role": "user", "content": f"Modified {SECRET}"}}])
    ctx.conversation.compress([2], f"Summary {SECRET}")
    ctx.pages.add_segment(quire.Segment(id="docs", name=f"Docs {SECRET}", description=SECRET))
    ctx.pages.update_segment("docs", name=f"Documents {SECRET}")
    ctx.pages.create_detail_page(f"Name {SECRET}", f"About {SECRET}", f"Text {SECRET}", "mem-0", meta={"a": [SECRET]})
    ctx.pages.create_contents_page(f"Folder {SECRET}", SECRET, "mem-0")
    ctx.pages.update_page("mem-1", name=f"New {SECRET}", description=SECRET, meta={SECRET: SECRET}, detail=SECRET)
    ctx.pages.set_detail("mem-1", f"Other text {SECRET}")
    ctx.checkpoint(f"Before {SECRET}")
    ctx.pages.acting_as(f"bot {SECRET}").set_detail("mem-1", "Plain")
    assert not ctx.tools.answer("write_page", {"name": f"Tool {SECRET}", "text": f"Tool text {SECRET}"}).failed
    ctx.windows.register(Note)
    window = ctx.windows.open("note")
    assert SECRET not in str(ctx.render().openai())
    ctx.assistant("I see the window.")  # stored with the view that it answers
    ctx.windows.close(window.id)
    plain = quire.open("memory:")
    plain.user(f"From a document {SECRET}")
    plain.pages.create_detail_page(f"Page {SECRET}", SECRET, SECRET, "mem-0", meta={"a": SECRET})
    document = folder / "document.json"
    plain.pages.save(document)
    ctx.fork("loaded").pages.load(document)


def stored_bytes(ctx: quire.Context, folder: Path, scheme: str) -> bytes:
    ctx.close()
    places = folder.rglob("*") if scheme == "file" else folder.glob("store*")
    return b"".join(path.read_bytes() for path in places if path.is_file())


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_what_redact_removes_is_nowhere(scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ctx = quire.open(f"{scheme}:{tmp_path / 'store'}", redact=redact, budget=20_000)
    fill(ctx, tmp_path)
    assert ctx.find("password") != []
    ctx.render(max_tokens=900, preview=True)
    ctx.budget = 1_500
    ctx.render()
    assert ctx.check() == []
    assert ctx.fork("copy").messages() != []
    assert SECRET not in whole_repr(list(ctx.messages(all=True)))
    assert SECRET not in whole_repr(list(ctx.history()))
    assert MARK in whole_repr(ctx.messages(all=True)[0])
    found = stored_bytes(ctx, tmp_path / "store" if scheme == "file" else tmp_path, scheme)
    for form in (SECRET.encode(), SECRET.encode("utf-16-le"), json.dumps(SECRET).encode()[1:-1]):
        assert form not in found
    assert SECRET not in caplog.text


@pytest.mark.servers  # vectors need numpy
def test_no_embedder_sees_it(tmp_path: Path) -> None:
    seen: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    ctx = quire.open("memory:", redact=redact, embedder=embed, budget=20_000)
    fill(ctx, tmp_path)
    assert ctx.find("password") != []
    assert seen
    assert not any(SECRET in text for text in seen)


BAD: dict[str, Callable[[quire.Context], object]] = {
    "no message": lambda ctx: ctx.add({"what": SECRET}),
    "a role": lambda ctx: ctx.add({"role": SECRET, "content": "x"}),
    "not Unicode": lambda ctx: ctx.user(f"{SECRET}\ud800"),
    "a name with a control": lambda ctx: ctx.pages.create_detail_page(f"{SECRET}\x00", "", "", "mem-0"),
    "a page": lambda ctx: ctx.pages.get_page(f"mem-{SECRET}"),
    "a page of an agent": lambda ctx: ctx.agent.get_page(f"mem-{SECRET}"),
    "a call": lambda ctx: ctx.tool_result(f"call-{SECRET}", "x"),
    "an edit": lambda ctx: ctx.conversation.modify([{"operation": SECRET}]),
    "a replacement": lambda ctx: ctx.conversation.replace(0, {"role": SECRET}),
    "meta": lambda ctx: ctx.pages.create_detail_page("a", "", "", "mem-0", meta={"a": {SECRET: object()}}),
}


@pytest.mark.parametrize("bad", BAD)
def test_no_error_quotes_it(bad: str) -> None:
    ctx = quire.open("memory:", redact=redact)
    ctx.user("Hello")
    with pytest.raises(quire.QuireError) as caught:
        BAD[bad](ctx)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert SECRET not in repr(vars(caught.value))


def test_signed_blocks_ids_and_media_stay() -> None:
    ctx = quire.open("memory:", redact=lambda text: re.sub(r"abc|bc|secret|look|fine|\ba\b", "x", text))
    signed = {"type": "thinking", "thinking": "a secret thought", "signature": "abc"}
    hidden = {"type": "redacted_thinking", "data": "abcdef"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoabc="}}
    ctx.add({"role": "user", "content": [image, {"type": "text", "text": "look"}]})
    ctx.add({"role": "assistant", "content": [signed, hidden, {"type": "text", "text": "fine"}]})
    reasoning = {"type": "reasoning", "id": "rs_abc", "summary": [], "encrypted_content": "abc"}
    ctx.user("go on")
    ctx.add([reasoning, {"type": "function_call", "call_id": "call_abc", "name": "read", "arguments": '{"a":"bc"}'}])
    stored = list(ctx.messages(all=True))
    contents: list[Any] = [message.content for message in stored]
    assert contents[0][0]["data"] == "iVBORw0KGgoabc="
    assert contents[1][0] == {"type": "thinking", "text": "a secret thought", "signature": "abc"}
    assert "abcdef" in str(contents[1][1])
    assert contents[1][2]["text"] == "x"
    assert '"encrypted_content":"abc"' in str(contents[3]).replace(" ", "")
    assert stored[3].tool_calls[0].id == "call_abc"
    assert stored[3].tool_calls[0].name == "read"
    assert stored[3].tool_calls[0].arguments == '{"x":"x"}'


@pytest.mark.parametrize("function", [lambda text: f"{text}!", lambda text: None, lambda text: 1 / 0, "no function"])
def test_an_unsuitable_function_and_a_secret_name_are_refused(function: Any) -> None:
    with pytest.raises(quire.InvalidValue) as caught:
        quire.open("memory:", redact=function).user(f"It is {SECRET}")
    assert SECRET not in str(caught.value)
    with pytest.raises(quire.InvalidValue) as caught:
        quire.open("memory:", f"for {SECRET}", redact=redact)
    assert SECRET not in str(caught.value)


def test_a_list_of_a_client_is_compared_after_redacting() -> None:
    ctx = quire.open("memory:", redact=redact)
    items = [{"role": "user", "content": f"It is {SECRET}"}, {"role": "assistant", "content": "Thanks"}]

    def sync(rows: list[dict[str, str]]) -> None:
        ListSync(ctx, parse, lambda item, _: json.dumps(item).encode()).update([dict(row) for row in rows])

    sync(items)
    sync(items)  # as after a restart
    sync([{**items[0], "content": f"It is {MARK}"}, items[1], {"role": "user", "content": "And now?"}])
    assert [message.content for message in ctx.messages()] == [f"It is {MARK}", "Thanks", "And now?"]


def test_a_library_and_asyncio_redact_too(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    library = quire.Library(place, redact=redact)
    with library.open("one") as ctx:
        ctx.user(SECRET)
        assert ctx.as_of(ctx.seq).messages()[0].content == MARK
    with library.create("two", redact=None) as ctx:
        ctx.user(SECRET)
        assert ctx.messages()[0].content == SECRET

    async def add() -> Any:
        async with quire.aio.open(place, "three", redact=redact) as ctx:
            await ctx.user(SECRET)
        async with quire.aio.Library(place, redact=redact) as shelf, shelf.open("three") as ctx:
            await ctx.user(SECRET)
            return [message.content for message in await ctx.messages()]

    assert asyncio.run(add()) == [MARK, MARK]


def test_a_summary_of_a_model_is_redacted() -> None:
    def summarise(text: str, tokens: int) -> str:
        return f"They talk about {SECRET}."

    ctx = quire.open("memory:", redact=redact, budget=1_200, compression=quire.CompressionConfig(summariser=summarise))
    for number in range(60):
        ctx.user(f"Question {number}: what is the weather in town number {number}?")
        ctx.assistant(f"Answer {number}: it rains in town number {number}, as always.")
        ctx.render()
        assert ctx.summarising is not None
        ctx.summarising.wait()
    assert MARK in str([page.description for page in ctx.pages.list_pages()])
    assert SECRET not in whole_repr(list(ctx.pages.list_pages()))
    assert SECRET not in str(ctx.render().openai())


# redact_secrets

SECRETS = {
    "sk-ant-api03-AbCd1234efGH5678ijKL9012mnOP": "API key",
    "AKIAIOSFODNN7EXAMPLE": "API key",
    "ghp_" + "a1B2c3D4e5" * 4: "token",
    "xoxb-123456789012-abcdefGHIJKL": "token",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P": "token",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/abc=\n-----END RSA PRIVATE KEY-----": "private key",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9u" * 2: "private key",
}


def test_secrets_are_redacted() -> None:
    for secret, kind in SECRETS.items():
        assert redact_secrets(secret) == f"[redacted {kind}]"
        assert redact_secrets(f'Use "{secret}" here.') == f'Use "[redacted {kind}]" here.'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgres://bob:hunter2@db.example/x", "postgres://bob:[redacted password]@db.example/x"),
        ("Authorization: Bearer abcDEF1234567890ghijKL", "Authorization: Bearer [redacted token]"),
        ("OPENAI_API_KEY=abcdefgh12345678ijkl", "OPENAI_API_KEY=[redacted API key]"),
        (r'"{\"auth_token\": \"abcdefgh12345678ijkl\"}"', r'"{\"auth_token\": \"[redacted API key]\"}"'),
    ],
)
def test_what_is_around_a_secret_stays(text: str, left: str) -> None:
    assert redact_secrets(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com:8080/path@2x.png",
        "mailto:bob@example.com and http://localhost:3000",
        "A file begins with -----BEGIN PRIVATE KEY----- if it is a key.",
        "task-force-risk-assessment-of-the-year-2024, sk-learn-pipeline-documentation",
        "The token limit is 128000; api_key is None.",
        "ghp_short eyJhbGciOiJ",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_secrets(text) == text


PIECES = st.sampled_from([*SECRETS, "://", ":", "@", "Bearer ", "api_key=", '"', " ", "\n", "sk-", "a1", "[redacted "])


@settings(max_examples=30)
@given(st.lists(PIECES | st.text(max_size=5), max_size=12))
def test_redact_secrets_is_idempotent(pieces: list[str]) -> None:
    once = redact_secrets("".join(pieces))
    assert redact_secrets(once) == once


def test_commands_and_the_server_redact(tmp_path: Path) -> None:
    key = "AKIAIOSFODNN7EXAMPLE"
    place, log = tmp_path / "store.db", tmp_path / "log.json"
    log.write_text(json.dumps([{"role": "user", "content": f"The key is {key}"}]))
    assert main(["import", str(place), str(log), "--context", "one", "--redact"]) == 0
    with quire.server.start(place, port=0, token="t" * 20, grace=1, redact=redact_secrets) as running:
        headers = {"Authorization": f"Bearer {'t' * 20}"}
        message = {"role": "user", "content": f"Again {key}"}
        answer = httpx.post(f"{running.address}api/contexts/one/messages", json=message, headers=headers, timeout=30)
        assert answer.status_code < 300, answer.text
    contents = [item.content for item in quire.open(place, "one").messages()]
    assert contents == ["The key is [redacted API key]", "Again [redacted API key]"]
    archive = tmp_path / "one.quire"
    quire.Library(place).export("one", archive)
    assert main(["import", str(place), str(archive), "--context", "two", "--redact"]) != 0
