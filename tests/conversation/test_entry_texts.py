"""The texts of journal entries."""

import quire
from quire.server.handlers.history import entry_texts


def texts(ctx: quire.Context) -> dict[str, str]:
    """Return the text of the last entry of each operation."""
    entries = list(ctx.history())
    found = ctx.pages._engine.read(lambda state: entry_texts(state, entries))
    assert found.keys() == {entry.seq for entry in entries}
    return {entry.operation: found[entry.seq] for entry in entries}


def test_an_entry_says_what_was_said() -> None:
    ctx = quire.open("memory:")
    ctx.system("You are careful.")
    ctx.user("Where is  order\nHAT17?")
    ctx.assistant("I look.", [quire.ToolCall("c1", "find_order", '{"id": 17}')])
    ctx.tool_result("c1", "On its way. " * 100)
    ctx.pages.create_detail_page("policy", "d", "text", "mem-0")
    ctx.pages.update_page("mem-1", name="new policy")
    said = texts(ctx)
    assert said["system"] == "You are careful."
    assert said["user"] == "Where is order HAT17?"
    assert said["assistant"] == 'I look. → find_order({"id": 17})'
    assert said["tool"].startswith("On its way. On its way.")
    assert len(said["tool"]) == 200
    assert said["create_detail_page"] == said["update_page"] == "new policy"


def test_an_undo_a_fold_and_a_removal_have_texts() -> None:
    ctx = quire.open("memory:", budget=1_500)
    for turn in range(30):
        ctx.user(f"Question {turn} about flight HAT{turn}. " * 5)
        ctx.render()
        ctx.assistant(f"Answer {turn}. " * 10)
    fold = list(ctx.history(operation="fold"))[-1]
    chapters = [change.index for change in fold.changes if change.before is None]
    names = ctx.pages.names(chapters)
    assert texts(ctx)["fold"].startswith(names[chapters[0]])
    ctx.pages.create_detail_page("policy", "d", "text", "mem-0")
    made = ctx.seq
    ctx.undo(made)
    ctx.pages.create_detail_page("other", "d", "text", "mem-0")
    ctx.pages.remove_page("mem-2")
    said = texts(ctx)
    assert said["undo"] == "policy"
    assert said["remove_page"] == "other"


def test_text_that_was_purged_is_not_in_the_journal() -> None:
    ctx = quire.open("memory:")
    ctx.user("My secret is 4711.")
    ctx.pages.purge("usr-1")
    assert "4711" not in repr(texts(ctx))
