"""A small library to look at: the demo's conversation with folds, notes, an archive, a batch, a window and a fork."""

from pathlib import Path

import quire
from quire.cli.commands.demo import load_conversation
from quire.windows.apps import Todo

DEMO_TALK = load_conversation()

BUDGET = 2_500
NAME = "coding-agent"
NOTES = (
    (
        "Rules of this ticket",
        "No migrations, no live database",
        "db/migrations/ is frozen until 2026-04-02. Replica: port 6543.",
    ),
    ("退款名单", "17 笔重复扣款的退款", "17 笔重复扣款，退款单号 PAY-4480，必须在周五 17:00 之前全部退回。"),
    ("How the gateway keeps keys", "24 hours, then a key is new", "The gateway keeps an idempotency key for 24 hours."),
    ("Words of the finance team", "结算、对账、冲正", "结算 settlement · 对账 reconciliation · 冲正 reversal"),
)


def fill_library(path: Path) -> None:
    """Write the library to a file."""
    library = quire.Library(path)
    with library.open(NAME, budget=BUDGET, key="kestrel") as context:
        _talk(context)
        _arrange(context)
        _work(context)
    _others(library)
    library.close()


def _talk(context: quire.Context) -> None:
    context.system(DEMO_TALK.system)
    for count, message in enumerate(DEMO_TALK.messages):
        context.add(message)
        if message.role == "tool" or (message.role == "assistant" and not message.tool_calls):
            context.render()
        if count == len(DEMO_TALK.messages) // 2:
            context.checkpoint("before the patch")


def _arrange(context: quire.Context) -> None:
    pages = context.pages
    folder = pages.create_contents_page("Ticket PAY-4471", "What was learned on the way", "mem-0")
    notes = [pages.create_detail_page(name, words, text, folder) for name, words, text in NOTES]
    pages.pin(notes[0])
    pages.hide(notes[2])
    pages.archive(notes[3], cold=True)


def _work(context: quire.Context) -> None:
    context.windows.register(Todo)
    todo = context.windows.open("todo").id
    for text in ("Ask the gateway how long it keeps keys", "写回归测试", "Tell support about the refunds"):
        context.windows.act(todo, "add", text=text)
    context.windows.act(todo, "done", index=2)
    context.conversation.batch_start()
    context.user("Only a thought: what if the gateway kept keys for 72 h?")
    context.assistant("Then a retry on the third day would still be recognised; the nightly job would need no change.")
    context.conversation.batch_end(0)
    context.user("请把要点再说一遍，然后结束。")
    context.assistant(
        "要点：重试时换了幂等键，所以同一张发票被扣了两次；现在每张发票一个键，退款在周五 17:00 之前完成。"
    )
    context.render()


def _others(library: quire.Library) -> None:
    library.fork(NAME, "coding-agent-what-if")
    with library.open("客服-机票改签", budget=BUDGET) as context:
        context.system("你是一位耐心的机票客服。")
        for day in range(12):
            context.user(f"我想把 5 月 {day + 1} 日的航班 HU71{day:02d} 改到后一天，可以吗？")
            context.assistant(f"可以。HU71{day:02d} 后一天还有座位，改签费 120 元，需要我现在办理吗？")
    with library.open("travel-desk", budget=BUDGET) as context:
        context.system("You are a careful travel agent.")
        for day in range(40):
            context.user(f"What about flight HAT{day} on 2024-05-{day % 28 + 1:02d}?")
            context.assistant(f"Flight HAT{day} has {day % 7 + 1} seats left. Shall I book one?")
