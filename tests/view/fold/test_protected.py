"""Pages that folding never touches, even without space: pinned pages everywhere, and the user's last message."""

import quire
from quire import Context
from tests.view_laws.laws import Forms, check_size


def folded_talk(budget: int = 400) -> tuple[Context, str]:
    """Return a folded conversation and one of its chapters."""
    ctx = quire.open("memory:", budget=budget)
    talk_on(ctx, 12)
    chapters = [page.index for page in ctx.pages.children("usr-0") if isinstance(page, quire.ContentsPage)]
    return ctx, chapters[0]


def talk_on(ctx: Context, turns: int) -> None:
    for turn in range(turns):
        ctx.user(f"question {turn} " + "word " * 20)
        ctx.assistant("yes " * 20)
        ctx.render()


def test_a_pinned_page_in_a_chapter_stays_shown() -> None:
    ctx, chapter = folded_talk()
    while isinstance(page := ctx.pages.children(chapter)[0], quire.ContentsPage):
        chapter = page.index
    ctx.pages.pin(page.index)
    talk_on(ctx, 6)
    assert ctx.check() == []
    assert page.index in [shown.index for shown in ctx.render().pages if shown.granularity == "whole"]


def test_a_pinned_chapter_in_a_chapter_stays_open() -> None:
    ctx = quire.open("memory:", budget=400)
    indices = []
    for turn in range(4):
        ctx.user(f"question {turn} " + "word " * 5)
        indices.append(f"usr-{turn + 1}")
    inner = ctx.pages.create_contents_page("Inner", "", "usr-0", indices[:2])
    ctx.pages.create_contents_page("Outer", "", "usr-0", [inner, indices[2]])
    ctx.pages.pin(inner)
    talk_on(ctx, 6)
    assert ctx.check() == []
    assert set(indices[:2]) <= {shown.index for shown in ctx.render().pages if shown.granularity == "whole"}


def test_a_message_of_nothing_is_not_the_last_word() -> None:
    ctx = quire.open("memory:", budget=240)
    ctx.system("of " * 20)
    ctx.assistant("hello " * 30)
    asked = ctx.user("question " + "word " * 30)
    ctx.user([])
    assert asked in [message.index for message in ctx.render().messages]


def test_folding_goes_on_where_the_first_few_save_nothing() -> None:
    ctx = quire.open("memory:", budget=600)
    while ctx.render(max_tokens=10**6).tokens <= 600:
        ctx.assistant("yes")
        ctx.user("no")
    assert ctx.render().tokens <= 600


def test_the_line_of_a_folded_page_is_counted_anew_when_it_changes() -> None:
    ctx, chapter = folded_talk()
    ctx.pages.update_page(chapter, description="Much more was said than anyone had thought. " * 2)
    view = ctx.render()
    check_size(view, Forms(view), ctx.budget)
    ctx.pages.update_page(chapter, name="短", description="")
    view = ctx.render()
    check_size(view, Forms(view), ctx.budget)


def test_a_result_before_a_late_system_message_is_not_folded() -> None:
    """Claude Code sends a system message after each result. The model has not answered the result yet."""
    ctx = quire.open("memory:", budget=900)
    ctx.user("Read the files.")
    for step in range(8):
        function = {"name": "read", "arguments": "{}"}
        ctx.assistant(tool_calls=[{"id": f"c{step}", "type": "function", "function": function}])
        ctx.tool_result(f"c{step}", f"the code of file {step} " + "word " * 250)
        ctx.add({"role": "system", "content": f"{step} files are read."})
        shown = ctx.render().messages
        assert f"the code of file {step} " in "".join(message.text for message in shown)
        assert f"{step} files are read." in shown[-1].text


def test_results_that_one_user_message_follows_are_not_folded() -> None:
    """Claude Code sends a reminder with the results, in one message. The model has not seen the results yet."""
    ctx = quire.open("memory:", budget=900)
    for step in range(8):
        ctx.user(f"question {step} " + "word " * 40)
        ctx.assistant("yes " * 20)
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    ctx.add({"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "the code " + "word " * 450}
    ctx.add({"role": "user", "content": [result, {"type": "text", "text": "Be careful."}]})
    view = ctx.render()
    assert view.fold is not None
    assert "the code " in str(view.anthropic())
    assert "Be careful." in str(view.anthropic())


def test_results_that_are_answered_are_folded() -> None:
    ctx = quire.open("memory:", budget=900)
    ctx.assistant(tool_calls=[{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}])
    ctx.tool_result("c1", "the code " + "word " * 450)
    ctx.assistant("Done.")
    for step in range(8):
        ctx.user(f"question {step} " + "word " * 40)
    assert "the code " + "word " * 40 not in str(ctx.render().openai())
