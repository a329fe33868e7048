"""Tool calls and their answers: each answer is true and names a next step."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire import Context, InvalidValue, Permission, Quota
from quire.search.vectors import embed
from tests.talks import new_talk


def call_of(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


# Summaries


def test_a_summary_that_came_from_the_text_goes_with_the_text() -> None:
    ctx = new_talk()
    ctx.tools.call("write_page", {"name": "Trip", "text": "Seattle,\non May 20."})
    ctx.tools.call("write_page", {"page": "mem-1", "text": "改为\n波特兰。" + "远" * 300})
    assert ctx.pages.get_page("mem-1").description == ("改为 波特兰。" + "远" * 300)[:200]


def test_a_summary_that_was_given_stays_until_another_is_given() -> None:
    ctx = new_talk()
    ctx.tools.call("write_page", {"name": "Trip", "summary": "Where to", "text": "Seattle"})
    ctx.tools.call("write_page", {"page": "mem-1", "text": "Portland"})
    assert ctx.pages.get_page("mem-1").description == "Where to"
    ctx.tools.call("write_page", {"page": "mem-1", "text": "Boston", "summary": "Boston"})
    ctx.tools.call("write_page", {"page": "mem-1", "name": "Journey"})
    assert ctx.pages.get_page("mem-1").description == "Boston"


def test_a_page_without_text_and_summary_gets_one_with_its_first_text() -> None:
    ctx = new_talk()
    ctx.tools.call("write_page", {"name": "Trip"})
    ctx.tools.call("write_page", {"page": "mem-1", "text": "Portland"})
    assert ctx.pages.get_page("mem-1").description == "Portland"


def test_a_change_with_another_folder_is_refused_and_names_the_tool_that_moves() -> None:
    ctx = new_talk()
    ctx.tools.call("write_page", {"name": "Trip", "text": "Seattle"})
    folder = ctx.pages.create_contents_page("Trips", "", "mem-0")
    refused = ctx.tools.call("write_page", {"page": "mem-1", "text": "Boston", "folder": folder})
    assert refused.startswith("InvalidValue: ")
    assert "Call move_page." in refused
    assert ctx.pages.detail("mem-1") == "Seattle"
    ctx.tools.call("write_page", {"page": "mem-1", "text": "Boston", "folder": "mem-0"})  # it is there
    assert ctx.pages.detail("mem-1") == "Boston"


# Search


def asked() -> Context:
    ctx = new_talk()
    ctx.user("My seat on the Seattle flight is 12A.")
    ctx.assistant("Noted.")
    ctx.user("Which seat on the Seattle flight did I say?")
    return ctx


def test_find_gives_neither_the_question_nor_its_own_call() -> None:
    ctx = asked()
    query = '{"query": "seat Seattle flight"}'
    ctx.assistant(None, [call_of(1, "find", query)])
    for waiting in ctx.pending_calls():
        said = ctx.tools.call(waiting)
    assert [line.partition("]")[0] for line in said.splitlines()] == ["[usr-1"]


def test_the_question_is_left_out_too_if_the_call_is_recorded_later() -> None:
    assert "[usr-3]" not in asked().tools.call("find", {"query": "seat"})


def test_a_limit_counts_what_is_given() -> None:
    ctx = asked()
    assert ctx.tools.call("find", {"query": "seat", "limit": 1}).startswith("[usr-1]")


def test_what_was_answered_already_is_found() -> None:
    ctx = asked()
    ctx.assistant("12A.")
    assert "[usr-3]" in ctx.tools.call("find", {"query": "seat"})


def test_hits_that_hold_only_some_of_it_are_told_apart() -> None:
    ctx = asked()
    ctx.assistant("The pier is closed.")
    said = ctx.tools.call("find", {"query": "seat seattle"}).splitlines()
    assert [line.partition("]")[0] for line in said] == ["[usr-1", "[usr-3"]
    said = ctx.tools.call("find", {"query": "pier seattle"}).splitlines()
    assert said[0] == "Not all of the query is in these:"
    assert {line.partition("]")[0] for line in said[1:]} == {"[usr-1", "[usr-3", "[usr-4"}
    ctx.tools.call("write_page", {"name": "Pier", "text": "The pier in Seattle"})
    said = ctx.tools.call("find", {"query": "pier seattle"}).splitlines()
    assert said[0].startswith("[mem-1]")
    assert said[1] == "Not all of the query is in these:"


@pytest.mark.parametrize("query", ["", "  ", "?!…", '"" -', "，。"])
def test_a_query_without_a_word_is_told_so(query: str) -> None:
    said = asked().tools.call("find", {"query": query})
    assert said == f"InvalidValue: query is {query!r}; it holds no word to look for."


def test_what_finds_nothing_is_told_of_the_star_where_it_helps() -> None:
    tools = asked().tools
    said = tools.call("find", {"query": "fligh"})  # "flights" would find "flight", its other form
    assert said.endswith("Try fewer or other words, or a word's beginning with a star: book* finds bookshelf.")
    assert tools.call("find", {"query": "座位"}) == "Nothing found for '座位'. Try fewer or other words."


def test_find_knows_meaning_if_there_is_an_embedder() -> None:
    pytest.importorskip("numpy")

    def animals(texts: list[str]) -> list[list[float]]:
        return [[float("dog" in text or "puppy" in text), float("flight" in text), 0.1] for text in texts]

    ctx = quire.open("memory:", embedder=animals)
    ctx.user("My dog loves long walks.")
    ctx.assistant("The flight is at nine.")
    ctx.user("And now?")
    assert ctx.agent.find("puppy")[0].index == ctx.find("puppy")[0].index == "usr-1"
    said = ctx.tools.call("find", {"query": "puppy", "limit": 1})
    assert said.startswith("Not all of the query is in these:\n[usr-1]")


def test_an_embedder_may_give_its_vectors_one_by_one_but_not_later() -> None:
    pytest.importorskip("numpy")

    def one_by_one(texts: list[str]) -> Iterator[list[float]]:
        yield from ([1.0, float(len(text))] for text in texts)

    async def later(texts: list[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    assert embed(one_by_one, ["a", "座位"]).shape == (2, 2)
    with pytest.raises(InvalidValue, match="plain function"):
        embed(later, ["a"])  # and no warning of a coroutine that was never awaited


# Filters


def test_an_agent_has_the_filters_of_a_developer() -> None:
    ctx = asked()
    ctx.agent.create_detail_page("Seat", "", "12A", "mem-0")
    assert [hit.index for hit in ctx.agent.find("seat", segment="mem")] == ["mem-1"]
    assert [hit.index for hit in ctx.agent.find("seat", kind="text", actor="agent")] == ["mem-1"]
    assert {hit.index for hit in ctx.agent.find("seat", role="user")} == {"usr-1", "usr-3"}
    with pytest.raises(InvalidValue, match=r"'segments'.*segment, kind, lifecycle"):
        ctx.agent.find("seat", segments="mem")  # type: ignore[call-arg]


def test_a_private_segment_is_no_filter() -> None:
    ctx = asked()
    ctx.pages.add_segment(quire.Segment(id="vault", name="Vault", permission=Permission.PRIVATE))
    with pytest.raises(quire.NoSuchSegment) as caught:
        ctx.agent.find("seat", segment="vault")
    with pytest.raises(quire.NoSuchSegment) as nowhere:
        ctx.agent.find("seat", segment="nowhere")
    assert str(caught.value) == str(nowhere.value).replace("nowhere", "vault")


# Arguments


@pytest.mark.parametrize(("tool", "argument"), [("find", "limit"), ("read_page", "length")])
@pytest.mark.parametrize("value", [0, "0", -1])
def test_a_number_that_asks_for_nothing_is_refused_by_name(tool: str, argument: str, value: Any) -> None:
    given = {"query": "seat"} if tool == "find" else {"page": "usr-1"}
    said = asked().tools.call(tool, {**given, argument: value})
    assert said == f"InvalidValue: {argument} is {value!r}; a whole number from 1 is needed."


@pytest.mark.parametrize("page", ["usr-1…usr-3", "[usr-1…usr-3 973] My seat: 12A", "usr-1...usr-3", "usr-1..usr-3"])
def test_a_line_for_several_pages_is_read_as_a_list(page: str) -> None:
    said = asked().tools.call("read_page", {"page": page})
    assert [line.partition(" ")[0] for line in said.splitlines()] == ["[usr-1", "[usr-2", "[usr-3"]


def test_a_run_of_segments_can_be_written_in_any_order() -> None:
    with quire.open("memory:") as ctx:
        said = ctx.tools.call("read_page", {"page": "sys-0…usr-0"})
        assert [line.split()[0] for line in said.splitlines()] == ["[sys-0", "[mem-0", "[usr-0"]
        assert ctx.tools.call("read_page", {"page": "usr-0…sys-0"}) == said


@pytest.mark.parametrize("page", ["usr-1…usr-3", "[usr-1…usr-3 973] My seat: 12A"])
def test_a_line_for_several_pages_is_no_page_but_helps_to_one(page: str) -> None:
    said = asked().tools.call("expand_details", {"page": page})
    assert said.startswith("NoSuchPage: No page 'usr-1…usr-3' in this context. These are several pages in one line")
    assert said.endswith("such as 'usr-1'. Call read_page('usr-1…usr-3') to list them.")


@pytest.mark.parametrize(
    "page",
    ["mem-1", "[mem-1]", " [mem-1] ", "[mem-1 10]", "[mem-1 10 hidden] Trip: 西雅图", "[ mem-1 2 pages]", "mem-1\n"],
)
def test_a_page_may_be_named_as_it_stands_in_a_line(page: str) -> None:
    ctx = new_talk()
    ctx.pages.create_detail_page("Trip", "", "Seattle", "mem-0")
    assert ctx.tools.call("read_page", {"page": page}) == " Seattle"
    assert ctx.tools.call("hide_details", {"page": page}).startswith("mem-1 is one line")


def test_folders_and_lists_of_pages_may_be_named_so_too() -> None:
    ctx = new_talk()
    for name in "ab":
        ctx.pages.create_detail_page(name, "", "", "mem-0")
    made = ctx.tools.call("write_page", {"name": "both", "folder": "[mem-0 2 pages]", "pages": ["[mem-1 0]", "mem-2"]})
    assert made == "Made folder mem-3 of 2 pages."
    assert ctx.tools.call("move_page", {"page": "[mem-2 0]", "folder": "[mem-3]", "before": "[mem-1]"}).startswith(
        "Moved"
    )
    assert [page.index for page in ctx.pages.children("mem-3")] == ["mem-2", "mem-1"]


@pytest.mark.parametrize("page", ["[]", "[", "[mem-1", "[[mem-1]]", "mem-1]"])
def test_other_spellings_are_no_page(page: str) -> None:
    ctx = new_talk()
    ctx.pages.create_detail_page("Trip", "", "Seattle", "mem-0")
    assert ctx.tools.call("hide_details", {"page": page}).startswith("NoSuchPage: ")


class Sheet(quire.App):
    """Lines of text."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @quire.action("Add a line")
    def add(self, text: str) -> None:
        self.lines.append(text)

    def content(self) -> str:
        return "\n".join(self.lines)


def test_arguments_of_an_action_may_come_as_json_text() -> None:
    ctx = new_talk()
    ctx.windows.register(Sheet, name="sheet")
    ctx.tools.call("window", {"do": "create", "id": "sheet", "arguments": ""})
    window = ctx.windows.list()[0].id
    said = ctx.tools.call("window", {"do": "action", "id": window, "action": "add", "arguments": '{"text": "一行"}'})
    assert not said.startswith("Invalid")
    assert "一行" in str(ctx.render().openai()[-1])
    said = ctx.tools.call("window", {"do": "action", "id": window, "action": "add", "arguments": "[1"})
    assert said == "InvalidValue: arguments is '[1'; an object is needed."


# Errors


REFUSALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "messages": ({"page": "usr-1", "text": "x"}, "InvalidOperation", "'usr-1'"),
    "a folder's text": ({"page": "mem-0", "text": "x"}, "InvalidOperation", "'mem-0'"),
    "a text for a new folder": ({"name": "x", "text": "lost", "pages": []}, "InvalidValue", "text is given with pages"),
    "a prompt": (
        {"page": "sys-1", "text": "x"},
        "PermissionDenied",
        "operation 'my_write_page' on sys-1 needs READ_WRITE, segment 'sys' is READ_ONLY",
    ),
    "a page that is no folder": ({"name": "x", "folder": "mem-1"}, "InvalidOperation", "'mem-1'"),
    "a summary": ({"name": "x", "summary": "a\x07b"}, "InvalidValue", "'a\\x07b'"),
    "no page": ({"page": "mem-9", "text": ""}, "NoSuchPage", "'mem-9'"),
    "twice": ({"name": "x", "pages": ["mem-1", "mem-1"]}, "InvalidValue", "'mem-1'"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_names_the_error_and_the_value(what: str) -> None:
    ctx = new_talk()
    ctx.system("Be careful.")
    ctx.user("Hello")
    ctx.pages.create_detail_page("note", "", "", "mem-0")
    arguments, error, value = REFUSALS[what]
    answer = ctx.tools.prefixed("my_").answer("my_write_page", arguments)
    assert answer.failed
    assert answer.text.startswith(f"{error}: ")
    assert value in answer.text


def test_a_refusal_names_the_tool_that_was_called() -> None:
    ctx = new_talk()
    ctx.pages.create_detail_page("note", "", "", "mem-0")
    ctx.pages.pin("mem-1")
    assert "my_remove_page" in ctx.tools.prefixed("my_").call("my_remove_page", {"page": "mem-1"})


def test_a_page_that_waits_for_a_result_is_refused_with_the_call() -> None:
    ctx = new_talk()
    ctx.assistant(None, [call_of(1, "x", "{}")])
    answer = ctx.tools.answer("hide_details", {"page": "usr-1"})
    assert answer.failed
    assert "'c1'" in answer.text


# Quotas and permissions


@pytest.mark.parametrize("field", Quota.__struct_fields__)
@pytest.mark.parametrize("value", [-1, None, True, 1.5, "10"])
def test_a_quota_that_bounds_nothing_is_refused_where_it_is_given(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"quota.{field} is .*whole number from 0"):
        new_talk().as_agent("scout", quota=Quota(**{field: value}))


def test_an_agent_can_be_kept_from_taking_messages_away() -> None:
    ctx = new_talk()
    ctx.user("Keep this.")
    ctx.pages.set_segment_permission("usr", Permission.READ_ONLY)
    assert ctx.tools.call("remove_page", {"page": "usr-1"}).startswith("PermissionDenied: ")
    assert ctx.tools.call("hide_details", {"page": "usr-1"}) == "usr-1 is one line from the next fold on."
    assert ctx.user("And this.") == 1


# Calls in errors

_CALLS = (
    ("write_page", {"page": "usr-1", "text": "x"}),
    ("write_page", {"page": "mem-0", "text": "x"}),
    ("write_page", {"name": "x", "folder": "mem-1"}),
    ("write_page", {"name": "x", "pages": ["mem-1", "mem-1"]}),
    ("write_page", {"page": "mem-9", "text": "x"}),
    ("hide_details", {"page": "mem-2"}),
    ("hide_details", {"page": "mem-3"}),
    ("hide_details", {"page": "usr-0"}),
    ("hide_details", {"page": "mem-4"}),
    ("expand_details", {"page": "mem-4"}),
    ("recall", {"page": "mem-1"}),
    ("move_page", {"page": "mem-1", "folder": "mem-1"}),
    ("move_page", {"page": "usr-1", "folder": "mem-0"}),
    ("archive", {"page": "usr-2"}),
    ("remove_page", {"page": "mem-0"}),
    ("read_page", {"page": "mem-5"}),
    ("find", {"query": '"'}),
)


@pytest.mark.parametrize(("tool", "arguments"), _CALLS)
def test_an_error_names_only_calls_that_the_model_has(tool: str, arguments: dict[str, Any]) -> None:
    ctx = new_talk()
    ctx.user("Hello")
    for name in ("note", "archived", "pinned", "cold", "removed"):
        ctx.pages.create_detail_page(name, "", "text", "mem-0")
    ctx.pages.archive("mem-2")
    ctx.pages.pin("mem-3")
    ctx.pages.archive("mem-4", cold=True)
    ctx.pages.remove_page("mem-5")
    ctx.assistant(None, [call_of(1, "x", "{}")])
    tools = ctx.tools.prefixed("my_")
    answer = tools.answer(f"my_{tool}", arguments)
    assert set(re.findall(r"\b([a-z_.]+)\(", answer.text)) <= set(tools.names()), answer.text


def test_a_run_is_listed_after_its_ends_were_removed_moved_or_archived() -> None:
    with quire.open("memory:", budget=3_000) as ctx:
        for number in range(200):
            ctx.agent.create_detail_page(f"Note {number}", "", f"Customer {number} wants a seat. " * 5, "mem-0")
        ctx.pages.add_segment(quire.Segment(id="old", name="Old notes"))
        ctx.user("Which seats?")
        run = next(page.index for page in ctx.render().pages if "…" in page.index)
        first, last = run.split("…")
        ctx.tools.call("remove_page", {"page": first})
        ctx.tools.call("move_page", {"page": last, "folder": "old-0"})
        assert run in {page.index for page in ctx.render().pages}
        said = ctx.tools.call("read_page", {"page": run})
        assert "mem-2" in said
        assert "No page" not in said
        ctx.tools.call("archive", {"page": "mem-3", "cold": True})
        said = ctx.tools.call("read_page", {"page": "mem-3…mem-5"})
        assert [line.split()[0] for line in said.splitlines()] == ["[mem-4", "[mem-5"]
        assert ctx.agent.read_page("mem-3…mem-5") == said
        assert ctx.agent.read_page("mem-3…mem-5", 1, 5) == "mem-4"
