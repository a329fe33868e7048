"""Extreme sizes: a view stays within its budget and legal, and needs little time and memory."""

import json
import subprocess
import sys

import pytest

import quire
from quire import Context, IrreducibleFloor, Message, ToolCall
from quire.view.clip import clip_exchange
from quire.view.parts import TokenCache
from tests.marks import broad
from tests.view_laws.laws import Forms, check_legality, check_size

BUDGET = 2_000


def asked(budget: int = BUDGET) -> Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are careful. 请谨慎。")
    ctx.user("Hello")
    return ctx


def check(ctx: Context) -> quire.View:
    """Check the laws of a single view, and that its last user message is there."""
    view = ctx.render()
    forms = Forms(view)
    check_size(view, forms, ctx.budget)
    check_legality(forms)
    last = [message.index for message in ctx.messages() if message.role == "user"][-1]
    assert last in [message.index for message in view.messages]
    assert ctx.render().openai() == forms.openai
    assert ctx.check() == []
    return view


TEXTS = {
    "prose": "The pump of tank 7 was replaced on 2024-05-20. ",
    "cjk": "数据库连接失败，请检查网络设置。",
    "one character": "数",
    "emoji": "🙂👩‍👩‍👧🇩🇪",
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3ODk+/w==",
    "one letter": "a",
    "one sign": "=",
    "spaces": " x" + " " * 500,
    "lines": "\n",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("who", ["user", "assistant", "tool"])
def test_one_message_far_larger_than_the_budget(kind: str, who: str) -> None:
    ctx = asked()
    text = "START" + TEXTS[kind] * (200_000 // len(TEXTS[kind])) + "END"
    if who == "user":
        ctx.user(text)
    else:
        ctx.assistant(text if who == "assistant" else None, [ToolCall("c", "read")] if who == "tool" else None)
    if who == "tool":
        ctx.tool_result("c", text)
    shown = str(check(ctx).messages[-1].content)
    assert shown.startswith("START")
    assert shown.endswith("END")
    assert "left out" in shown


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("shape", ["nested", *broad("object", "no object", "custom")])
@pytest.mark.parametrize("answered", [False, True])
def test_one_call_far_larger_than_the_budget(kind: str, shape: str, answered: bool) -> None:
    ctx = asked()
    text = "START" + TEXTS[kind] * (200_000 // len(TEXTS[kind])) + "END"
    arguments = {
        "object": json.dumps({"path": "src/app.py", "content": text}),
        "nested": json.dumps({"files": [{"path": "src/app.py", "content": text}]}, ensure_ascii=False),
        "no object": text,
        "custom": text,
    }[shape]
    ctx.assistant(None, [ToolCall("c", "write", arguments, custom=shape == "custom")])
    if answered:
        ctx.tool_result("c", "written")
    view = check(ctx)
    [shown] = [call.arguments for message in view.messages for call in message.tool_calls]
    assert "left out" in shown
    if shape == "object":
        assert json.loads(shown)["path"] == "src/app.py"
        assert json.loads(shown)["content"].startswith("START")
        assert json.loads(shown)["content"].endswith("END")
    if answered:
        assert view.messages[-1].content == "written"


def test_a_long_call_is_no_reason_to_leave_out_an_image() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    call = Message(role="assistant", tool_calls=(ToolCall("c", "write", json.dumps({"content": "word " * 9_000})),))
    result = Message(role="tool", tool_call_id="c", content=[picture])
    clipped = clip_exchange([call, result], 4_000, "usr-1", lambda text: len(text) // 4)
    assert clipped[1] == result
    assert "left out" in clipped[0].tool_calls[0].arguments


@pytest.mark.parametrize("kind", TEXTS)
def test_nothing_but_one_kind_of_text(kind: str) -> None:
    ctx = asked()
    for turn in range(30):
        ctx.user(f"{turn}{TEXTS[kind] * (900 // len(TEXTS[kind]))}")
        ctx.assistant(f"{turn}{TEXTS[kind] * (300 // len(TEXTS[kind]))}.")
        check(ctx)


@pytest.mark.slow
def test_ten_thousand_messages_of_one_token() -> None:
    ctx = asked()
    ctx.import_messages({"role": "user" if n % 2 else "assistant", "content": "a"} for n in range(10_000))
    ctx.user("b")
    view = check(ctx)
    assert len([page for page in view.pages if page.granularity == "line"]) <= 50
    for _ in range(20):
        ctx.assistant("a")
        ctx.user("b")
        view = ctx.render()
        check_size(view, Forms(view), BUDGET)


@pytest.mark.parametrize("answered", [100, *broad(0, 200)])
def test_an_open_exchange_of_two_hundred_calls(answered: int) -> None:
    ctx = asked(8_000)
    ctx.assistant(None, [ToolCall(f"call_{n}", "search", f'{{"page": {n}}}') for n in range(200)])
    for n in range(answered):
        ctx.tool_result(f"call_{n}", f"{n}: " + "found " * 300)
    view = check(ctx)
    assert len([message for message in view.messages if message.role == "tool"]) == 200
    with pytest.raises(IrreducibleFloor, match="usr-2"):
        ctx.render(max_tokens=1_000)


@pytest.mark.slow
def test_thousands_of_pinned_pages_are_named_with_their_tokens() -> None:
    ctx = asked()
    for number in range(2_000):
        ctx.pages.create_detail_page(f"note {number}", "", "word " * 10, "mem-0", pinned=True)
    with pytest.raises(IrreducibleFloor, match=r"mem-\d+ \([\d,]+\)") as caught:
        ctx.render()
    assert len(str(caught.value)) < 500
    assert ctx.render(max_tokens=200_000).tokens <= 200_000


def test_many_lines_of_a_segment_are_gathered() -> None:
    ctx = asked(600)
    ctx.pages.add_segment(quire.Segment(id="tickets", name="Tickets"))
    for number in range(90):
        ctx.pages.create_detail_page(f"Ticket {number}", "", "The lid is broken. 壶盖坏了。 " * 9, "tickets-0")
    view = check(ctx)
    assert view.tokens <= 600
    lines = [page.index for page in view.pages if page.index.startswith("tickets") and page.granularity == "line"]
    assert lines[0].startswith("tickets-1…")


def test_a_prompt_larger_than_the_budget_is_named() -> None:
    ctx = asked()
    ctx.system("p " * 3_000)
    with pytest.raises(IrreducibleFloor, match=r"sys-1 \([\d,]+\)"):
        ctx.render()


@pytest.mark.parametrize("budget", [1, 60])
def test_a_budget_that_is_too_small_for_anything(budget: int) -> None:
    ctx = asked(budget)
    seq = ctx.seq
    with pytest.raises(IrreducibleFloor, match=r"sys-1 \(\d+\)"):
        ctx.render()
    assert ctx.seq == seq
    assert ctx.render(max_tokens=500).tokens <= 500


FIFTY_MEGABYTES = """
import resource, quire
line = "2024-05-20 12:00:01 worker-7 /var/log/app.log ValueError: user_81 refund $201 failed 数据\\n"
text = line * (50_000_000 // len(line.encode()))
ctx = quire.open("memory:", budget=8_000)
ctx.user("What does the log say?")
ctx.assistant(None, [quire.ToolCall("c", "read")])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ctx.tool_result("c", text)
view = ctx.render()
assert view.tokens <= 8_000 and view.tokens > 4_000
for turn in range(20):
    ctx.user("word " * 100)
    ctx.assistant("word " * 100)
    assert ctx.render().tokens <= 8_000
assert text[:50] in ctx.pages.detail("usr-2")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 // len(text.encode()))
"""


@pytest.mark.slow
def test_a_result_of_fifty_megabytes_takes_a_few_times_its_size() -> None:
    done = subprocess.run([sys.executable, "-c", FIFTY_MEGABYTES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 12  # counting all of it at once needed more than twenty times its size


def test_clipping_looks_at_the_beginning_of_megabytes_only() -> None:
    looked: list[int] = []

    def count(text: str) -> int:
        looked.append(len(text))
        return len(text) // 4

    messages = [quire.Message(role="tool", tool_call_id="c", content="word " * 1_000_000)]
    clipped = clip_exchange(messages, 500, "usr-1", count)
    assert len(clipped[0].text) < 4_000
    assert sum(looked) < 500_000


def test_a_text_that_took_the_place_of_a_clipped_one_is_shown_whole() -> None:
    ctx = asked()
    page = ctx.pages.create_detail_page("Note", "", "Read this. " * 3_000, "usr-0")
    assert "left out" in str(ctx.render().openai())
    ctx.pages.set_detail(page, "Read that.")
    assert str(ctx.render().messages[-1].content).endswith("Note:\n Read that.")


def test_what_is_remembered_of_texts_is_bounded_by_their_size() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    sizes = TokenCache(count, {"known": 7})
    assert [sizes.count("known"), sizes.count("small"), sizes.count("small")] == [7, 5, 5]
    assert counted == ["small"]
    for number in range(20):
        sizes.count(f"{number} " + "x" * 1_000_000)
    assert sizes.count("small") == 5
    assert counted.count("small") == 2
