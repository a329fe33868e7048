"""Views over HTTP: equal to the library's views; a preview writes nothing."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import quire
from quire.server.routes import ROUTES
from quire.storage.base import Commit
from tests.server.conftest import TOKEN, Api, Talk, talk_in
from tests.server.test_routes import CASES, IN_CONTEXT, url


@pytest.mark.parametrize("form", ["openai", "anthropic", "responses"])
def test_a_view_equals_that_of_the_library(form: str, api: Api, talk: Talk) -> None:
    view = api.get(f"{talk.path}/view", format=form, budget=3_000)
    other = quire.Library(talk.context.pages.storage).open(talk.context.name, budget=4_000)
    drawn = other.render(max_tokens=3_000, preview=True)
    sent = getattr(drawn, form)()
    assert view["messages"] == (sent["messages"] if form == "anthropic" else sent)
    assert view["tokens"] == drawn.tokens == sum(item["tokens"] for item in view["items"])
    assert (view["system"] is not None) == (form == "anthropic")
    for item in view["items"]:
        assert -1 <= item["message"] < len(view["messages"])
        assert (item["message"] == -1) <= (form == "anthropic")
    shown = [(item["page"], item["tokens"]) for item in view["items"] if item["page"]]
    assert shown == [(page.index, page.tokens) for page in drawn.pages]
    names = {item["page"]: item["name"] for item in view["items"]}
    assert names["mem-2"] == "note 0"


def test_the_prefix_is_measured_against_the_last_view_of_that_budget(api: Api, talk: Talk) -> None:
    first = api.get(f"{talk.path}/view")
    assert first["prefix"] == {"messages": 0, "tokens": 0, "broke": None}
    talk.context.user("next")
    api.get(f"{talk.path}/view", budget=3_800)  # with another budget
    second = api.get(f"{talk.path}/view")
    assert second["prefix"]["tokens"] == first["tokens"]
    assert second["prefix"]["messages"] == len(first["messages"])
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["prefix"]["broke"] is None
    talk.context.conversation.replace([1], {"role": "user", "content": "instead"})
    third = api.get(f"{talk.path}/view")
    at = third["prefix"]["messages"]
    assert third["messages"][:at] == second["messages"][:at]
    assert third["messages"][at] != second["messages"][at]
    assert third["prefix"]["broke"]["at"] == at
    assert "Page" in third["prefix"]["broke"]["why"]


def test_a_page_that_was_renamed_is_shown_by_its_new_name(api: Api, talk: Talk) -> None:
    def named() -> str:
        items = api.get(f"{talk.path}/view")["items"]
        return str(next(item["name"] for item in items if item["page"] == "usr-1"))

    assert named().startswith("Question 0")
    talk.context.pages.update_page("usr-1", name="改名")
    assert named() == "改名"
    talk.context.undo(talk.context.seq)
    assert named().startswith("Question 0")


def test_rendering_may_fold_and_looking_never_does(api: Api, library: quire.Library) -> None:
    talk = talk_in(library, turns=40)
    before = api.get(f"{talk.path}/history", order="desc", limit=1)["seq"]
    view = api.get(f"{talk.path}/view", budget=1_500)
    assert api.get(talk.path)["seq"] == before
    rendered = api.post(f"{talk.path}/render", {"budget": 1_500})
    assert rendered["seq"] == before + 1
    assert rendered["folded"]["exchanges"] > 0
    assert rendered["tokens"] <= 1_500
    assert view["budget"] == rendered["budget"] == 1_500
    assert api.get(talk.path)["budget"] == 1_500  # for all handles
    with library.open(talk.context.name, create=False) as ctx:
        assert ctx.budget == 1_500
    entry = api.get(f"{talk.path}/history", order="desc", limit=1)["entries"][0]
    assert (entry["operation"], entry["actor"]) == ("fold", "renderer")


class Watched(quire.MemoryStorage):
    """Records every commit."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def commit(self, context: str, commit: Commit) -> None:
        self.writes.append(context)
        super().commit(context, commit)

    def fork(self, *arguments: Any) -> None:
        self.writes.append("fork")
        super().fork(*arguments)

    def drop(self, context: str) -> None:
        self.writes.append("drop")
        super().drop(context)


def test_no_get_writes_anything() -> None:
    storage = Watched()
    talk = talk_in(quire.Library(storage), "watched", turns=30)
    talk.context.pages.archive("mem-3", cold=True)
    talk.context.checkpoint("here")
    with quire.server.start(storage, port=0, token=TOKEN, budget=1_000) as running:
        api = Api(running.address)
        storage.writes.clear()
        for route in ROUTES:
            if route.method == "GET" and "event" not in route.path:
                api.ask("GET", url(route, talk.path, CASES[route.name]), 200, params=CASES[route.name].query)
        for query in ({"left_seq": 5, "right_seq": 9}, {"left_budget": 500, "right_budget": 300, "right_seq": 40}):
            api.get(f"{talk.path}/diff", **query)
        api.get(f"{talk.path}/rollback", to="here")
        api.get(f"{talk.path}/view", budget=300, recall=0.3)
        assert storage.writes == []
        for route in IN_CONTEXT:
            if route.method == "GET" and "event" not in route.path:
                path = url(route, "not-there", CASES[route.name])
                api.ask("GET", path, 404, params=CASES[route.name].query)
        assert storage.writes == []
        assert list(storage.contexts()) == ["watched"]
        api.client.close()


# Comparison of two views


def test_two_views_are_laid_side_by_side(api: Api, talk: Talk) -> None:
    then = talk.context.seq
    left = api.get(f"{talk.path}/view")
    talk.context.conversation.delete([1])
    talk.context.user("later")
    answer = api.get(f"{talk.path}/diff", left_seq=then)
    assert (answer["left"]["seq"], answer["right"]["seq"]) == (then, talk.context.seq)
    assert answer["left"]["tokens"] == left["tokens"]
    ours = [one["left"] for one in answer["changes"] if one["left"] is not None]
    theirs = [one["right"] for one in answer["changes"] if one["right"] is not None]
    assert ours == left["messages"]
    assert theirs == api.get(f"{talk.path}/view")["messages"]
    assert ours[: answer["shared"]] == theirs[: answer["shared"]]
    assert ours[answer["shared"]] != theirs[answer["shared"]]
    assert {one["op"] for one in answer["changes"]} >= {"same", "added"}
    assert {"page": "usr-1", "change": "gone", "left": answer["pages"][-1]["left"], "right": 0} in answer["pages"]
    same = api.get(f"{talk.path}/diff", format="anthropic")
    assert {one["op"] for one in same["changes"]} == {"same"}
    assert same["changes"][0]["left"]["role"] == "system"


def test_a_rollback_is_shown_before_it_is_made(api: Api, talk: Talk) -> None:
    talk.context.checkpoint("before the tests")
    mark = talk.context.seq
    talk.context.pages.hide("mem-2")
    talk.context.user("one more")
    talk.context.pages.remove_page("mem-3")
    preview = api.get(f"{talk.path}/rollback", to="before the tests")
    assert preview == api.get(f"{talk.path}/rollback", to=mark)
    assert (preview["seq"], preview["entries"], preview["more"]) == (mark, 3, 0)
    pages = {page["index"]: page for page in preview["pages"]}
    assert pages["mem-2"]["now"]["visibility"] == "hidden"
    assert pages["mem-2"]["then"]["visibility"] == "expanded"
    assert pages["mem-3"]["now"] is None
    assert pages["mem-3"]["then"]["name"] == "note 1"
    assert [page["then"] for page in preview["pages"] if page["index"].startswith("usr")] == [None]
    assert preview["messages_before"] == preview["messages_after"] + 1
    api.post(f"{talk.path}/rollback", {"to": mark})
    assert len(api.get(f"{talk.path}/messages", limit=1_000)["messages"]) == preview["messages_after"]
    assert api.get(f"{talk.path}/pages/mem-3")["name"] == "note 1"


def test_undo_and_redo_are_distinguished(api: Api, talk: Talk) -> None:
    talk.context.pages.hide("mem-2")
    hidden = talk.context.seq

    def undone() -> list[int]:
        entries = api.get(f"{talk.path}/history", after=hidden - 1)["entries"]
        return [entry["seq"] for entry in entries if entry["undone"]]

    assert undone() == []
    first = api.post(f"{talk.path}/undo", {"seq": hidden})["seq"]
    assert undone() == [hidden]
    second = api.post(f"{talk.path}/undo", {"seq": first})["seq"]
    assert undone() == [first]
    third = api.post(f"{talk.path}/undo", {"seq": second})["seq"]
    assert undone() == [hidden, second]
    assert third == hidden + 3


def test_windows_have_the_content_of_their_apps(api: Api, talk: Talk) -> None:
    from parts.file_viewer import Files

    from quire.windows.apps import Todo

    talk.context.windows.register(Todo)
    talk.context.windows.register(Files, Path(__file__).parent)
    talk.context.windows.open("todo", window_id="list")
    talk.context.windows.open("files", window_id="files")
    api.post(f"{talk.path}/windows/list/add", {"text": "买菜 <b>"})
    windows = {window["id"]: window for window in api.get(f"{talk.path}/windows")["windows"]}
    assert windows["list"]["content"].endswith("买菜 <b>")
    assert windows["list"]["tokens"] > 0
    assert "add" in [action["name"] for action in windows["list"]["actions"]]
    assert "not registered" in windows["files"]["error"]  # the server does not know the app
    api.refused("POST", f"{talk.path}/windows/list/fly", 404, "no_such_action", json={})
    api.refused("POST", f"{talk.path}/windows/list/add", 400, "invalid_value", json={"txt": "x"})
    items = api.get(f"{talk.path}/view")["items"]
    assert [item["how"] for item in items if item["kind"] == "window"] == ["window"]
    api.post(f"{talk.path}/windows/list/close", {"summary": "done"})
    assert [window["id"] for window in api.get(f"{talk.path}/windows", obsolete=True)["windows"]] == ["list", "files"]
    assert [window["id"] for window in api.get(f"{talk.path}/windows")["windows"]] == ["files"]


def test_a_tool_is_called_as_the_agent(api: Api, talk: Talk) -> None:
    answer = api.post(f"{talk.path}/tools/call", {"name": "update_page", "arguments": {"page": "sys-1", "name": "x"}})
    assert "PermissionDenied" in answer["result"] or "InvalidValue" in answer["result"]
    answer = api.post(f"{talk.path}/tools/call", {"name": "nope", "arguments": "not json"})
    assert "no tool" in answer["result"]
    assert api.get(f"{talk.path}/tools", format="anthropic")["tools"][0]["input_schema"]


def test_a_hit_is_cut_where_the_words_are(api: Api, talk: Talk) -> None:
    hits = api.get(f"{talk.path}/search", q="西雅图", limit=3)["hits"]
    assert len(hits) == 3
    for hit in hits:
        assert "西雅图" in [piece["text"] for piece in hit["snippet"] if piece["hit"]]
        assert hit["path"][0] == "usr-0"
    assert quote(talk.context.name, safe="") in talk.path


def test_a_refused_render_does_not_change_the_budget(api: Api, talk: Talk) -> None:
    api.refused("POST", f"{talk.path}/render", 422, "irreducible_floor", json={"budget": 20})
    assert api.get(talk.path)["budget"] == 4_000
    api.post(f"{talk.path}/checkpoint", {"name": "later"})
    talk.context.refresh()
    assert talk.context.budget == 4_000


def test_nothing_of_a_deleted_context_is_shown_in_a_new_one_of_its_name(
    api: Api, talk: Talk, library: quire.Library
) -> None:
    for path in ("/view", "/view?against=call", "/stats", "/history"):
        api.get(f"{talk.path}{path}")
    seq, name = talk.context.seq, talk.context.name
    library.delete(name)
    new = library.create(name)
    while new.seq < seq:
        new.user("a new text")
    view = api.get(f"{talk.path}/view")
    assert {item["name"] for item in view["items"] if item["page"]} == {"a new text"}
    assert api.get(f"{talk.path}/stats")["total_items"] == len(new.messages())
