"""Document 003, section by section: its examples, in its words."""

from typing import Any
from xml.etree import ElementTree

import pytest

import quire
from quire import Context
from tests.windows.sample_apps import Aufgaben, Counter

PROMPT = "你是 ContextUI 助手..."
CREATE = quire.ToolCall("c1", "create", '{"name": "todo"}')


@pytest.fixture
def ctx() -> Context:
    opened = quire.open("memory:", budget=8_000, key="kestrel")
    opened.windows.register(Aufgaben)
    opened.windows.register(Counter)
    return opened


def talk(ctx: Context) -> None:
    ctx.system(PROMPT)
    ctx.user("创建一个待办列表")
    ctx.assistant("好的，我来帮你创建...", [CREATE])
    ctx.windows.open("todo", window_id="todo_12345")
    ctx.tool_result("c1", "Opened todo_12345.")


def windows_in(ctx: Context, **options: Any) -> list[ElementTree.Element]:
    texts = [message.text for message in ctx.render(**options).messages]
    return [ElementTree.fromstring(text) for text in texts if text.startswith("<Window ")]


def test_3_3_a_window_is_rendered_as_shown_there(ctx: Context) -> None:
    talk(ctx)
    ctx.windows.act("todo_12345", "add", text="买菜")
    ctx.windows.act("todo_12345", "add", text="写代码")
    last = ctx.render().messages[-1]
    assert last.role == "user"
    assert last.text == (
        '<Window id="todo_12345" key="kestrel">\n'
        "  <Description>待办事项管理应用</Description>\n"
        '  <Content><item id="1">买菜</item><item id="2">写代码</item></Content>\n'
        '  <Actions><action id="add" params="text:string">添加条目</action>'
        '<action id="delete" params="index:int">删除条目</action>'
        '<action id="close" params="summary:string?">关闭</action></Actions>\n'
        "</Window>"
    )


def test_3_3_a_window_in_hand_has_what_is_shown_of_it(ctx: Context) -> None:
    talk(ctx)
    ctx.windows.act("todo_12345", "add", text="买菜")
    window = ctx.windows.get("todo_12345")
    assert (window.id, window.description, window.content) == ("todo_12345", "待办事项管理应用", (("1", "买菜"),))
    assert [(action.name, action.params, action.description) for action in window.actions] == [
        ("add", "text:string", "添加条目"),
        ("delete", "index:int", "删除条目"),
        ("close", "summary:string?", "关闭"),
    ]


def test_1_3_and_2_2_items_have_types_and_ascending_seqs(ctx: Context) -> None:
    talk(ctx)
    ctx.user("添加一个条目：买菜")
    items = list(ctx.items())
    assert [item.type for item in items] == ["System", "User", "Assistant", "Window", "User"]
    assert [item.content for item in items][3] == "todo_12345"
    seqs = [item.seq for item in items]
    assert seqs == sorted(set(seqs))


def test_4_a_closed_window_is_obsolete_and_out_of_the_active_items(ctx: Context) -> None:
    talk(ctx)
    ctx.windows.close("todo_12345", "三件事都做完了")
    assert [item.obsolete for item in ctx.items() if item.type == "Window"] == [True]
    assert all(item.type != "Window" for item in ctx.items(active=True))
    assert windows_in(ctx) == []
    (window,) = windows_in(ctx, include_obsolete=True)
    assert window.get("obsolete") == "true"
    assert window.findtext("Content") == "三件事都做完了"


def test_4_closing_by_its_action_does_the_same(ctx: Context) -> None:
    talk(ctx)
    ctx.windows.act("todo_12345", "close", summary="完成")
    closed = ctx.windows.get("todo_12345")
    assert (closed.obsolete, closed.summary, closed.content) == (True, "完成", "完成")
    assert [hit.index for hit in ctx.find("完成")] == [ctx.windows.get("todo_12345").page]


def test_6_the_same_window_shows_what_it_is_now_once(ctx: Context) -> None:
    talk(ctx)
    for n, text in enumerate(("买菜", "写代码", "睡觉"), 1):
        ctx.windows.act("todo_12345", "add", text=text)
        ctx.user(f"第{n}轮")
        (window,) = windows_in(ctx)
        assert [item.text for item in window.findall("Content/item")] == ["买菜", "写代码", "睡觉"][:n]


def test_7_2_the_conversation_reads_as_shown_there(ctx: Context) -> None:
    talk(ctx)
    ctx.user("添加一个条目：买菜")
    ctx.assistant("已添加...")
    inline = ctx.render(windows="inline").messages
    told = [(m.role, m.text[:14]) for m in inline if m.role != "tool" and "Context key" not in m.text]
    assert told == [
        ("system", PROMPT[:14]),
        ("user", "创建一个待办列表"),
        ("assistant", "好的，我来帮你创建..."[:14]),
        ("user", '<Window id="to'),
        ("user", "添加一个条目：买菜"),
        ("assistant", "已添加..."),
    ]
    assert ctx.render().messages[-1].text.startswith('<Window id="todo_12345"')
    for windows in ("tail", "inline"):
        view = ctx.render(windows=windows)
        assert quire.check_legal(view.openai(), "openai") == []
        assert quire.check_legal(view.anthropic(), "anthropic") == []
        assert quire.check_legal(view.responses(), "responses") == []


def test_8_1_statistics_count_open_windows(ctx: Context) -> None:
    talk(ctx)
    ctx.windows.open("counter", window_id="temp_67890")
    ctx.windows.close("temp_67890")
    stats = ctx.stats()
    assert (stats.total_items, stats.active_items, stats.obsolete_items, stats.window_items) == (5, 4, 1, 1)
    assert stats.estimated_tokens == sum(stats.segments.values())


def test_8_2_the_debug_print_is_that_of_the_document(ctx: Context) -> None:
    ctx.system(PROMPT)
    ctx.user("创建一个待办列表")
    ctx.assistant("好的，我来帮你创建...")
    ctx.windows.open("todo", window_id="todo_12345")
    ctx.windows.open("counter", window_id="temp_67890")
    ctx.windows.close("temp_67890")
    first = ctx.seq - 5
    assert ctx.dump() == "\n".join(
        [
            f"[✓] [{first:04d}] System: 你是 ContextUI 助手...",
            f"[✓] [{first + 1:04d}] User: 创建一个待办列表",
            f"[✓] [{first + 2:04d}] Assistant: 好的，我来帮你创建...",
            f"[✓] [{first + 3:04d}] Window: todo_12345",
            f"[X] [{first + 4:04d}] Window: temp_67890",
        ]
    )


def test_8_2_of_a_long_text_fifty_characters_are_printed(ctx: Context) -> None:
    ctx.user("长" * 49 + "。")
    ctx.user("长" * 51)
    short, long = (line.partition("User: ")[2] for line in ctx.dump().splitlines())
    assert short == "长" * 49 + "。"
    assert len(long) == 50
    assert long.startswith("长" * 45)
    assert long != "长" * 50


# 5.2, the priorities: obsolete windows, old exchanges, active windows, the last turns; never the system prompt


def crowded(budget: int) -> Context:
    """Return old exchanges, an obsolete window, an unimportant, an important and a pinned one, and three last turns."""
    ctx = quire.open("memory:", budget=budget, key="kestrel")
    ctx.pages.update_segment("win", max_capacity=budget)
    ctx.windows.register(Counter)
    ctx.system(PROMPT)
    for n in range(12):
        ctx.user(f"old question {n}: " + "alpha beta " * 40)
        ctx.assistant(f"old answer {n}: " + "gamma delta " * 40)
    for name, options in (
        ("gone", {}),
        ("plain", {}),
        ("important", {"important": True}),
        ("pinned", {"pinned": True}),
    ):
        ctx.windows.open("counter", window_id=name, padding=150, **options)
    ctx.windows.close("gone", "obsolete " * 50)
    for n in range(3):
        ctx.user(f"last question {n}")
        ctx.assistant(f"last answer {n}")
    ctx.user("now")
    return ctx


def what_is_left(ctx: Context) -> dict[str, bool]:
    view = ctx.render(include_obsolete=True)
    assert view.tokens <= ctx.budget
    whole = {shown.index for shown in view.pages if shown.granularity == "whole"}
    pages = {message.text: ctx.conversation.page_of(message.index) for message in ctx.messages()}
    old = [page for text, page in pages.items() if text.startswith("old")]
    turns = ["last question 1", "last answer 1", "last question 2", "last answer 2"]
    return {
        "obsolete": any('id="gone"' in message.text for message in view.messages),
        "old": whole.issuperset(old),
        "plain": ctx.windows.get("plain").page in whole,
        "important": ctx.windows.get("important").page in whole,
        "turns": whole.issuperset(pages[text] for text in turns),
        "pinned": ctx.windows.get("pinned").page in whole,
        "system": pages[PROMPT] in whole,
        "now": pages["now"] in whole,
    }


def test_5_2_what_goes_first_when_space_is_short() -> None:
    rows = [what_is_left(crowded(budget)) for budget in (6_000, 3_200, 1_400, 1_080, 800)]
    assert all(row["system"] and row["now"] and row["pinned"] for row in rows)
    assert [[row[name] for name in ("obsolete", "old", "plain", "important", "turns")] for row in rows] == [
        [True, True, True, True, True],
        [False, True, True, True, True],
        [False, False, True, True, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
    ]


def test_5_2_the_last_turns_go_after_all_windows_that_may_go() -> None:
    for budget in range(480, 1_500, 60):
        left = what_is_left(crowded(budget))
        kept = [left[name] for name in ("obsolete", "old", "plain", "important", "turns")]
        assert kept == sorted(kept), (budget, left)
        assert left["system"]
        assert left["now"]
