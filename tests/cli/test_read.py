"""The output and the effects of commands in detail."""

import json
from pathlib import Path

import pytest

import quire
from quire.cli.terminal import Paint, width
from quire.cli.tree import MAX_PAGES, draw_tree, tree_pages
from tests.cli.conftest import NAME, Run
from tests.cli.screens import plain, widest

PLAIN = Paint(colour=False)


def test_the_only_context_is_the_default(run: Run, store: Path) -> None:
    assert run("stats", store, "--json").value()["name"] == NAME
    assert run("new", store, "--context", "second").code == 0
    assert "'default'" in run("stats", store).err
    assert run("new", store).code == 0
    assert run("stats", store, "--json").value()["name"] == "default"


def test_a_misspelt_context_is_answered_with_similar_names(run: Run, tmp_path: Path) -> None:
    with quire.Library(tmp_path / "a.db", create=True) as library:
        for number in range(15):
            library.create(f"支持-{number:02}")
    said = run("stats", tmp_path / "a.db", "-c", "支持14").err
    assert "Did you mean '支持-14' or " in said
    assert "'支持-11' and 3 more." in said
    far = run("stats", tmp_path / "a.db", "-c", "xylophone").err
    assert "Did you mean" not in far
    assert "Contexts there: '支持-00', " in far


def test_ls_lists_names_with_figures_in_columns_also_chinese_ones(run: Run, store: Path) -> None:
    run("new", store, "--context", "a")
    ended = run("ls", store, "--long")
    head, *rows = ended.out.splitlines()
    assert head.split()[:3] == ["context", "messages", "entries"]
    ends = [width(row[: row.index(" 20")]) for row in rows]  # the dates are aligned
    assert len(set(ends)) == 1
    values = {value["name"]: value for value in run("ls", store, "--long", "--json").values()}
    assert values[NAME]["messages"] == 5
    assert values[NAME]["pages"] == 11
    assert run("ls", store, "--prefix", "支", "--json").value()["name"] == NAME
    assert run("ls", store, "--prefix", "x").out == "no contexts\n"


def test_ls_shows_an_unfinished_copy_among_the_others(run: Run, store: Path) -> None:
    with quire.Library(store) as library:
        from quire.storage.base import Commit

        library.storage.commit("half", Commit(0, -1, b"", ()))
    ended = run("ls", store, "--long")
    assert ended.code == 0
    assert "unfinished copy" in ended.out
    assert NAME in ended.out


def test_show_prints_the_state_and_the_text_of_a_page(run: Run, store: Path) -> None:
    said = run("show", store, "mem-1").out
    size = run("show", store, "mem-1", "--json").value()["summary_tokens"]
    assert f", its summary {size}\n" in said
    assert "乘客想要靠窗的座位。" in said
    assert "mem-0 › mem-2" in said
    assert run("show", store, "mem-1", "--body").out == "乘客想要靠窗的座位。\n"
    assert "mem-1 座位" in run("show", store, "mem-2").out
    assert "(cold, from mem-0)" in run("show", store, "mem-3").out
    value = run("show", store, "usr-2", "--json").value()
    assert value["path"] == ["usr-0"]
    assert "Result of call_1: HAT217" in value["detail"]


def test_control_characters_are_escaped_on_a_terminal_and_unchanged_in_a_pipe(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "Look: \x1b]0;owned\x07 \x1b[2J done\u202e\x9b1m"
    with quire.open(tmp_path / "a.db") as context:
        context.user(hostile)
    assert hostile in run("show", tmp_path / "a.db", "usr-1", "--body").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    for words in (["show", "usr-1"], ["render"], ["find", "Look"], ["tree"], ["why", "usr-1"], ["hide", "usr-1"]):
        ended = run(words[0], tmp_path / "a.db", *words[1:])
        assert ended.code == 0
        assert not set(ended.out) & set("\x1b\x07\u202e\x9b")
    assert "␛]0;owned␇" in run("show", tmp_path / "a.db", "usr-1").out


def test_find_shows_the_match_in_a_long_line(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quire.open(store, NAME) as context:
        context.user(f"{'航班时刻表说明' * 8}护照{'登机口信息更新' * 8}")
    monkeypatch.setenv("COLUMNS", "40")
    said = run("find", store, "护照").out
    assert "«护照»" in said
    assert widest(said) <= 40


def test_archive_prints_the_kind_of_archive_and_the_command_to_undo_it(run: Run, store: Path) -> None:
    assert "mem-2 Wishes: archived: " in run("archive", store, "mem-2").out
    for index, state in (("mem-2", "archived"), ("mem-1", "folded")):  # itself, and a page below it
        assert f"no change: it is {state}, not cold-archived; restore" in run("recall", store, index).out
    assert run("restore", store, "mem-1").code == 0
    assert run("restore", store, "mem-2").code == 0
    assert "no change" in run("recall", store, "mem-2").out
    cold = run("archive", store, "mem-2", "--cold").out
    assert "cold-archived: " in cold
    assert "recall brings it back" in cold
    assert "back in the tree" in run("recall", store, "mem-2").out


def test_a_rollback_prints_that_pins_are_not_changed(run: Run, store: Path) -> None:
    assert run("hide", store, "mem-1").code == 0
    assert "not changed\n" not in run("rollback", store, "before", "--dry-run").out
    assert run("pin", store, "mem-1").code == 0
    assert "\n1 pin not changed\n" in run("rollback", store, "before", "--dry-run").out
    assert run("rollback", store, "before", "--dry-run", "--json").value()["pins"] == 1
    assert "\n1 pin not changed\n" in run("rollback", store, "before").out
    assert run("show", store, "mem-1", "--json").value()["pinned"] is True
    assert "No" in run("rollback", store, "nowhere").err


def test_find_marks_matches_and_filters(run: Run, store: Path) -> None:
    said = run("find", store, "靠窗")
    assert "«靠窗»" in said.out
    assert widest(said.out) <= 100
    found = [value["index"] for value in run("find", store, "old trains", "--lifecycle", "cold", "--json").values()]
    assert found == ["mem-3"]
    assert run("find", store, "座位", "--role", "tool", "--json").value()["index"] == "usr-2"
    nothing = run("find", store, "xylophone")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing found for 'xylophone'" in nothing.err
    assert run("find", store, "xylophone", "--json").out == ""


def test_render_prints_the_content_of_a_request(run: Run, store: Path) -> None:
    with quire.open(store, NAME) as context:
        view = context.render(max_tokens=2_000)
    assert json.loads(run("render", store, "-b", 2000, "-f", "openai").out) == view.openai()
    anthropic = json.loads(run("render", store, "-b", 2000, "-f", "anthropic").out)
    assert anthropic == view.anthropic()
    assert json.loads(run("render", store, "-b", 2000, "-f", "responses").out) == view.responses()
    marked = json.loads(run("render", store, "-f", "anthropic", "--cache").out)
    assert "cache_control" in json.dumps(marked)
    value = run("render", store, "-b", 2000, "-f", "openai", "--json").value()
    assert (value["tokens"], value["budget"]) == (view.tokens, 2_000)
    assert value["messages"] == view.openai()
    text = run("render", store)
    assert "── user\n" in text.out
    assert 'call call_1: search({"to":"SEA"})' in text.out
    assert "tokens" in text.err


def test_the_stored_budget_is_used(run: Run, store: Path) -> None:
    with quire.open(store, NAME, create=False, budget=2_500) as ctx:
        ctx.user("One more question.")
        sent = ctx.render()
    for words in (["view"], ["render"], ["why", "usr-1"]):
        assert run(words[0], store, *words[1:]).code == 0
    value = run("render", store, "-f", "openai", "--json").value()
    assert (value["tokens"], value["budget"]) == (sent.tokens, 2_500)
    assert value["messages"] == sent.openai()
    assert run("view", store, "--json").value()["budget"] == 2_500
    assert run("view", store, "-b", "9k", "--json").value()["budget"] == 9_000
    with quire.open(store, NAME, create=False) as ctx:
        assert ctx.budget == 2_500


@pytest.mark.parametrize(("typed", "meant"), [("8k", 8_000), ("16K", 16_000), ("0.5M", 500_000), ("8_000", 8_000)])
def test_a_budget_may_be_typed_in_thousands(run: Run, store: Path, typed: str, meant: int) -> None:
    assert run("view", store, "--budget", typed, "--json").value()["budget"] == meant


@pytest.mark.parametrize("typed", ["many", "8kb", "k", "1e3", ""])
def test_a_budget_that_is_not_a_number_is_refused(run: Run, store: Path, typed: str) -> None:
    ended = run("view", store, "--budget", typed)
    assert ended.code == 2
    assert f"{typed!r} is not a number of tokens, such as 8000 or 8k" in ended.err


def test_stats_and_hits_describe_states(run: Run, store: Path) -> None:
    assert "4 in the conversation (prompts, exchanges, summaries)\n" in run("stats", store).out
    with quire.open(store, NAME) as context:
        context.conversation.delete(1)
    assert "; edits removed 1 more\n" in run("stats", store).out
    assert "mem-3  score " in run("find", store, "old trains").out
    assert "Old note  [cold-archived]\n" in run("find", store, "old trains").out
    assert run("archive", store, "mem-2").code == 0
    said = run("find", store, "座位").out
    assert "座位  [folded]\n" in said
    assert " 0.00" not in said
    assert "Wishes  [archived]\n" in run("find", store, "Wishes").out


def test_why_names_the_rule_and_the_call(run: Run, store: Path) -> None:
    value = run("why", store, "mem-3", "--json").value()
    assert (value["shown"], value["rule"], value["call"]) == ("no", "in the cold archive", "recall('mem-3')")
    assert "pinned: shown whole, always" in run("why", store, "sys-1").out


def test_page_commands_change_a_page_once(run: Run, store: Path) -> None:
    first = run("hide", store, "mem-2", "--json").value()
    assert (first["changed"], first["page"]["visibility"]) == (True, "hidden")
    again = run("hide", store, "mem-2", "--json").value()
    assert (again["changed"], again["seq"]) == (False, first["seq"])
    assert "no change" in run("hide", store, "mem-2").out
    assert run("expand", store, "mem-1", "--json").value()["page"]["effective"] == "active"
    assert run("pin", store, "mem-1", "--json").value()["page"]["pinned"] is True
    assert "pinned" in run("archive", store, "mem-2").err
    assert run("unpin", store, "mem-1", "--json").value()["page"]["pinned"] is False
    assert run("archive", store, "mem-2", "--cold", "--json").value()["page"]["lifecycle"] == "cold"
    assert run("recall", store, "mem-2", "--json").value()["page"]["parent"] == "mem-0"
    moved = run("move", store, "mem-1", "win-0", "--json").value()
    assert moved["moved"] == {"mem-1": "win-1"}
    assert "mem-1 → " in run("move", store, "win-1", "mem-0", "--before", "mem-2").out.replace("win-1", "mem-1")


# History


def test_history_shows_the_last_entries_and_filters(run: Run, store: Path) -> None:
    values = run("history", store, "--limit", 2, "--json").values()
    everything = run("history", store, "--all", "--json").values()
    assert values == everything[-2:]
    assert [value["seq"] for value in everything] == [*range(1, len(everything) + 1)]
    named = [value for value in everything if value["checkpoint"]]
    assert [value["checkpoint"] for value in named] == ["before"]
    archived = run("history", store, "--operation", "archive", "--page", "mem-3", "--changes", "--json").value()
    assert archived["changes"][0]["before"]["name"] == "Old note"
    assert run("history", store, "--since", "2200-01-01", "--json").out == ""
    assert run("history", store, "--until", "2200-01-01T00:00+08:00", "-n", 99, "--json").values() == everything
    assert run("history", store, "--actor", "nobody").err == "no entries\n"
    assert "'before'" in run("history", store, "--all").out


@pytest.mark.parametrize(
    "words",
    [("tree",), ("stats",), ("find", "x"), ("view",), ("history",), ("show", "usr-1"), ("hide", "usr-1"), ("doctor",)],
)
def test_a_wrong_name_creates_no_context(run: Run, store: Path, words: tuple[str, ...]) -> None:
    assert run(words[0], store, *words[1:], "-c", "misspelt").code == 2
    with quire.Library(store) as library:
        assert "misspelt" not in list(library.list())


def test_a_rollback_preview_lists_no_index_that_exists_neither_then_nor_now(run: Run, tmp_path: Path) -> None:
    with quire.open(tmp_path / "a.db") as context:
        context.pages.add_segment(quire.Segment(id="box", name="Box"))
        note = context.pages.create_detail_page("笔记", "", "text", "mem-0")
        context.checkpoint("before")
        between = context.pages.move_page(note, "win-0")[note]
        now = context.pages.move_page(between, "box-0")[between]
    preview = run("rollback", tmp_path / "a.db", "before", "--dry-run", "--json").value()
    changes = {page["index"]: (page["now"], page["then"]) for page in preview["pages"]}
    assert changes[note][0] == changes[now][1] == "not there"
    assert between not in changes


def test_a_rollback_can_be_previewed(run: Run, store: Path) -> None:
    with quire.open(store, NAME) as context:
        before, at = context.seq, context.pages.checkpoints()["before"]
    preview = run("rollback", store, "before", "--dry-run", "--json").value()
    assert (preview["entries"], preview["messages_now"], preview["messages_then"]) == (before - at, 5, 1)
    assert [page["index"] for page in preview["pages"]] == ["usr-1", "usr-2", "usr-3"]
    assert {page["then"] for page in preview["pages"]} == {"not there"}
    shown = run("rollback", store, "before", "--dry-run").out
    assert "messages in the conversation: 5 → 1" in shown
    assert "nothing was changed" in shown
    with quire.open(store, NAME) as context:
        assert context.seq == before
    done = run("rollback", store, at, "--json").value()
    assert done == {"seq": before + 1, "to": at, "changed": True, "dry_run": False, "pins": 0}
    with quire.open(store, NAME) as context:
        assert len(context.messages()) == 1
    assert run("undo", store, before + 1).code == 0
    with quire.open(store, NAME) as context:
        assert len(context.messages()) == 5


def test_a_rollback_goes_back_before_a_message(run: Run, store: Path) -> None:
    with quire.open(store, NAME) as context:
        seq, index = context.seq, context.conversation.messages_on("usr-2")[0].index
        at, kept = context.conversation.entry_before(index), context.messages()[:index]
    preview = run("rollback", store, "--before", "usr-2", "--dry-run", "--json").value()
    assert (preview["to"], preview["messages_then"]) == (at, len(kept))
    assert run("rollback", store, "--before", index, "--json").value()["to"] == at
    with quire.open(store, NAME) as context:
        assert list(context.messages()) == list(kept)
    assert run("undo", store, seq + 1).code == 0
    assert run("rollback", store, "--before", "usr-2").out.startswith(f"rolled back to {at} ")
    for message in ("mem-0", "mem-99", 99, "sys"):
        assert run("rollback", store, "--before", message).code == 2


def test_a_fork_starts_at_the_given_point(run: Run, store: Path) -> None:
    value = run("fork", store, "early", "--at", "before", "--json").value()
    assert (value["name"], value["of"], value["at"]) == ("early", NAME, "before")
    with quire.open(store, "early") as context:
        assert len(context.messages()) == 1


# The tree


def test_a_tree_of_one_page_and_with_a_depth(run: Run, store: Path) -> None:
    lines = run("tree", store, "mem-2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["mem-2", "└─"]
    assert run("tree", store, "mem-1").out.splitlines()[0].startswith("mem-1 座位")
    shallow = run("tree", store, "--depth", 1, "--json").values()
    assert not any(value["index"] == "mem-1" for value in shallow)
    everything = run("tree", store, "--json").values()
    depths = {value["index"]: value["depth"] for value in everything}
    assert (depths["mem-0"], depths["mem-2"], depths["mem-1"], depths["mem-3"]) == (0, 1, 2, 0)


def large(parent: str, pages: quire.ContextSystem, wide: int, deep: int) -> int:
    """Create `deep` levels of folders with `wide` pages each, and return the number of pages."""
    made = 0
    for number in range(wide):
        if deep:
            made += 1 + large(pages.create_contents_page(f"Folder {number}", "", parent), pages, wide, deep - 1)
        else:
            pages.create_detail_page(f"Page {number}", "", "", parent)
            made += 1
    return made


def test_a_large_tree_shows_its_upper_levels_and_all_levels_with_everything() -> None:
    with quire.open("memory:") as context:
        made = large("mem-0", context.pages, 11, 2)  # 1,463 pages
        found = list(tree_pages(context.pages))
        assert MAX_PAGES <= len(found) < MAX_PAGES + 30 < made
        assert sum(depth == 2 for depth, _ in found) == 121  # all of this level, a part of the next
        everything = list(tree_pages(context.pages, everything=True))
        assert len(everything) == made + 4
        assert [page.index for _, page in everything if page.index.startswith("mem-")][1:] == [
            page.index for _, page in context.pages.walk("mem-0")
        ][1:]
        lines = list(draw_tree(context.pages, PLAIN, everything=True))
        assert len(lines) == made + 4
        drawn = list(draw_tree(context.pages, PLAIN))
        assert len(drawn) == len(found)


def test_a_very_deep_tree_is_drawn_to_its_end_with_everything() -> None:
    with quire.open("memory:") as context:
        parent = "mem-0"
        for _ in range(150):
            parent = context.pages.create_contents_page("Deeper", "", parent)
        assert len(list(draw_tree(context.pages, PLAIN, everything=True))) == 154
        assert len(list(draw_tree(context.pages, PLAIN))) == 44


def test_a_replay_prints_what_every_call_would_send(run: Run, tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}]
    for number in range(12):
        talk.append({"role": "user", "content": f"问题 {number}? " + "Please look. " * 30})
        talk.append({"role": "assistant", "content": f"Answer {number}. " + "It is so. " * 30})
    (tmp_path / "talk.json").write_text(json.dumps({"messages": talk}))
    *calls, sums = run("replay", tmp_path / "talk.json", "--budget", 1_000, "--json").values()
    assert [call["call"] for call in calls] == [*range(1, 13)]
    assert all(call["tokens"] <= 1_000 for call in calls)
    assert any(call["folded"] for call in calls)
    for side, key in (("quire", "tokens"), ("quire", "cached")):
        assert sums[side][key] == sum(call[key] for call in calls)
    assert sums["quire"]["cost"] == pytest.approx(sum(call["cost"] for call in calls))
    assert sums["sliding_window"]["tokens"] == sum(call["sliding_window"]["tokens"] for call in calls)
    assert sums["quire"]["illegal"] == 0
    shown = run("replay", tmp_path / "talk.json", "--budget", 1_000).out
    assert "── folded" in shown
    assert f"{sums['quire']['tokens']:,}" in shown
    assert widest(plain(shown)) <= 100
    refused = run("replay", tmp_path / "talk.json", "--budget", 100)
    assert refused.code == 1
    (tmp_path / "asked.json").write_text(json.dumps(talk[:2]))
    assert "no model call" in run("replay", tmp_path / "asked.json").err
