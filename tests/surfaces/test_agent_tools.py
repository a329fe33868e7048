"""The agent's tools from outside: schemas, effects, refusals, quotas, and whatever a model sends."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire import Context, Permission, Quota, Segment, Tools
from tests.surfaces.agent_table import CALLS, REFUSED, SAME, Call, open_book

REFUSALS = [(word, call) for word, calls in REFUSED.items() for call in calls]
LONGEST = 600
"""The most characters of a refusal: a model pays for them."""
PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


@pytest.fixture
def ctx() -> Iterator[Context]:
    """Return a context with the pages of the table, and a segment that an agent may remove."""
    with quire.open("memory:") as context:
        open_book(context)
        context.pages.add_segment(Segment(id="free", permission=Permission.SYSTEM_MANAGED))
        yield context


def tools_of(ctx: Context, **quota: int) -> Tools:
    """Return the tools of an agent that manages segments."""
    return ctx.tools_of(ctx.as_agent(manage=True, quota=Quota(**quota)))


def state(ctx: Context) -> tuple[object, ...]:
    """Return what a call can change."""
    return ctx.seq, ctx.pages.marshal(), list(ctx.messages(all=True))


def outline(ctx: Context) -> list[tuple[object, ...]]:
    """Return the pages without their times."""
    return [(p.index, p.parent, p.name, p.visibility, p.lifecycle, p.author) for p in ctx.pages.list_pages()]


# The table


@pytest.mark.parametrize("row", CALLS, ids=lambda row: f"{row.tool} {json.dumps(row.arguments)[:50]}")
def test_a_call_has_its_effect_and_says_so(ctx: Context, row: Call) -> None:
    before = ctx.seq
    answer = tools_of(ctx).answer(row.tool, row.arguments)
    assert not answer.failed
    assert [part for part in row.says if part not in answer.text] == []
    for index, fields in row.pages.items():
        if fields is None:
            with pytest.raises(quire.NoSuchPage):
                ctx.pages.get_page(index)
            continue
        page = ctx.pages.get_page(index)
        for field, wanted in fields.items():
            value = ctx.pages.detail(index) if field == "detail" else getattr(page, field)
            assert getattr(value, "name", value) == wanted
    if row.tool in ("find", "read_page", "budget"):
        assert ctx.seq == before
    assert all(entry.actor == "agent" for entry in ctx.history() if entry.seq > before)
    assert ctx.check() == []


@pytest.mark.parametrize(("word", "call"), REFUSALS, ids=lambda value: ascii(value)[:50] if type(value) is str else "")
@pytest.mark.filterwarnings("ignore")
def test_a_refused_call_says_which_error_it_is_and_changes_nothing(
    ctx: Context, word: str, call: tuple[Any, ...]
) -> None:
    before = state(ctx)
    answer = tools_of(ctx).answer(*call)
    assert answer.failed
    assert answer.text.startswith(f"{word}: ")
    assert len(answer.text) <= LONGEST
    assert answer.text.encode("utf-8")
    assert state(ctx) == before


@pytest.mark.parametrize("way", SAME)
def test_a_call_is_understood_in_every_shape(way: str) -> None:
    given, meant = SAME[way]
    results = []
    for call in (given, meant):
        with quire.open("memory:", key="kestrel") as context:
            said = open_book(context).tools.call(*call)
            results.append((said, outline(context)))
    assert results[0] == results[1]
    assert not re.match(r"[A-Z]\w+: ", results[0][0])


def test_every_tool_and_every_argument_is_in_the_table(ctx: Context) -> None:
    used = {(row.tool, name) for row in CALLS for name in row.arguments}
    for tool in tools_of(ctx).mcp():
        assert tool["name"] in {row.tool for row in CALLS}
        assert {(tool["name"], name) for name in tool["inputSchema"]["properties"]} <= used


# Schemas


@pytest.mark.clients
def test_the_schemas_are_json_schema_and_few(ctx: Context) -> None:
    validator: Any = pytest.importorskip("jsonschema").Draft202012Validator
    tools = tools_of(ctx)
    functions = [tool["function"] for tool in tools.openai()]
    assert 0 < len(functions) <= 12
    assert len(json.dumps(functions)) < 5_000
    schemas = [[tool["parameters"] for tool in functions], [tool["parameters"] for tool in tools.responses()]]
    schemas += [[tool["input_schema"] for tool in tools.anthropic()], [tool["inputSchema"] for tool in tools.mcp()]]
    for schema in schemas[0]:
        validator.check_schema(schema)
        assert schema["type"] == "object"
        assert all(value["description"] for value in schema["properties"].values())
    assert all(form == schemas[0] for form in schemas)
    assert [tool["name"] for tool in functions] == tools.names() == list(tools)
    assert all(tool["description"] for tool in functions)


@pytest.mark.clients
def test_what_the_schemas_allow_is_what_a_call_takes(ctx: Context) -> None:
    validator: Any = pytest.importorskip("jsonschema").Draft202012Validator
    schemas = {tool["name"]: tool["input_schema"] for tool in tools_of(ctx).anthropic()}
    for row in CALLS:
        validator(schemas[row.tool]).validate(row.arguments)
    for name, schema in schemas.items():
        if schema.get("required"):
            assert not validator(schema).is_valid({})
            assert tools_of(ctx).call(name, {}).startswith("InvalidValue: ")


def test_tools_can_be_narrowed_and_renamed(ctx: Context) -> None:
    tools = ctx.tools.only("expand_details", "find")
    assert list(tools) == ["find", "expand_details"]
    assert "read_page" not in tools
    assert tools.answer("read_page", {"page": "usr-1"}).failed
    ours = tools.prefixed("quire_")
    assert list(ours) == ["quire_find", "quire_expand_details"]
    assert "[usr-1]" in ours.call("quire_find", {"query": "Seattle"})
    assert ours.answer("find", {"query": "Seattle"}).failed
    assert list(ctx.tools.reading()) == ["find", "read_page", "budget"]
    for narrow, name in ((tools.only, "read_page"), (tools.prefixed, "no spaces")):
        with pytest.raises(quire.InvalidValue):
            narrow(name)
    assert {"segment", "window"} & {*ctx.tools} == set()  # they would only refuse


@pytest.mark.parametrize("form", ["openai", "responses", "anthropic"])
def test_tools_beside_are_added_if_their_names_are_free(ctx: Context, form: str) -> None:
    mine = {"openai": {"type": "function", "function": {"name": "find"}}}.get(form, {"name": "find"})
    assert len(getattr(ctx.tools.prefixed("q_"), form)([mine])) == len(list(ctx.tools)) + 1
    beside: list[list[Any]] = [[mine], [{}], [5]]
    for wrong in beside:
        with pytest.raises(quire.InvalidValue):
            getattr(ctx.tools, form)(wrong)


def test_the_page_about_agents_has_the_rights_and_the_tools_as_they_are(ctx: Context) -> None:
    text = PAGE.read_text(encoding="utf-8")
    agent = ctx.as_agent(manage=True)
    rows = re.findall(r"^\| (`.*) \| (.) \| (.) \| (.) \| not there \|", text, re.MULTILINE)
    assert len(rows) == 4
    for names, *marks in rows:
        for permission, mark in zip(("READ_ONLY", "READ_WRITE", "SYSTEM_MANAGED"), marks, strict=True):
            ctx.pages.set_segment_permission("free", Permission[permission])
            for name in re.findall(r"`(\w+)`", names):
                try:
                    agent.check_permission("free-0", name)
                    allowed = True
                except quire.PermissionDenied:
                    allowed = False
                assert (name, permission, allowed) == (name, permission, mark == "✓")
    for tool in tools_of(ctx).mcp():
        line = re.findall(rf"^\| `{tool['name']}` \|(.*)$", text, re.MULTILINE)[-1]
        assert all(f"`{name}" in line for name in tool["inputSchema"]["properties"])


# Whatever a model sends

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["mem-1", "mem-2", "usr-1", "add"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_FIELDS = st.sampled_from(sorted({name for row in CALLS for name in row.arguments}))
_ARGUMENTS = st.dictionaries(_FIELDS, _VALUES, max_size=6) | _VALUES | st.binary(max_size=99) | st.text(max_size=99)


def _send(name: str, arguments: Any) -> None:
    with quire.open("memory:") as context:
        tools = tools_of(open_book(context))
        before = state(context)
        answer = tools.answer(name, arguments)
        assert answer.text.encode("utf-8")
        assert not answer.text.startswith("InternalError")
        assert context.check() == []
        if answer.failed:
            assert len(answer.text) <= LONGEST
            assert state(context) == before


_sent = given(st.sampled_from(sorted({row.tool for row in CALLS})), _ARGUMENTS)
test_nothing_raises_out_of_a_call = settings(max_examples=25)(_sent(_send))
test_nothing_ever_raises_out_of_a_call = pytest.mark.slow(settings(max_examples=3_000)(_sent(_send)))


def test_two_writers_do_not_refuse_each_other() -> None:
    storage = quire.MemoryStorage()
    ctx, other = quire.open(storage), quire.open(storage)
    other.pages.create_detail_page("first", "", "", "mem-0")
    assert not ctx.tools.answer("write_page", {"name": "second", "text": "x"}).failed
    assert [page.name for page in ctx.pages.children("mem-0")] == ["first", "second"]


def test_a_long_page_and_a_long_folder_are_read_piece_by_piece(ctx: Context) -> None:
    text = "".join(f"line {number}\n" for number in range(3_000))
    page = ctx.pages.create_detail_page("long", "", text, "mem-0")
    for number in range(95):
        ctx.pages.create_detail_page(f"note-{number}", "", "", "mem-2")
    for arguments, wanted in (({"page": page}, r"line (\d+)"), ({"page": "mem-2"}, r"note-(\d+)")):
        found: list[str] = []
        start = "0"
        while start:
            said = ctx.tools.call("read_page", {**arguments, "start": start, "length": 9_000})
            found += re.findall(wanted, said)
            start = "".join(re.findall(r"start=(\d+)", said.splitlines()[-1]))
        assert len(set(found)) == (3_000 if page in arguments.values() else 95)


# Quotas


@pytest.mark.parametrize(
    ("quota", "free"), [({"pages": 2}, 2), ({"bytes": 35}, 2), ({"depth": 0}, 0), ({"calls": 3}, 3)]
)
def test_a_quota_bounds_what_an_agent_adds(ctx: Context, quota: dict[str, int], free: int) -> None:
    tools = tools_of(ctx, **quota)
    for number in range(free):
        assert not tools.answer("write_page", {"name": f"note {number}", "text": "12345"}).failed
    before = state(ctx)
    assert tools.call("write_page", {"name": "one more", "text": "x"}).startswith("QuotaExceeded: ")
    assert state(ctx) == before


def test_calls_are_counted_until_the_user_speaks_again(ctx: Context) -> None:
    tools = tools_of(ctx, calls=2)
    tools.only("budget").call("budget")
    tools.prefixed("q_").call("q_read_page", {"page": 5})
    assert tools.call("budget").startswith("QuotaExceeded: ")
    ctx.user("Go on.")
    assert not tools.answer("budget").failed
