"""The inspector shows what the model saw, beside what would be sent now, and texts in the timeline."""

import quire
from tests.server.inspector.conftest import Opener
from tests.server.inspector.visitor import expect
from tests.view.test_sent import TOOL, agent, talk


def test_the_last_sent_view_is_shown_beside_the_view_now(visit: Opener) -> None:
    visitor = visit()
    with quire.Library(visit.stand.path) as library:
        view = talk(agent(library.storage), 4, recall=0.3, tools=[TOOL])
    visitor.go("window", "agent")
    expect(visitor.find(".sent-line b")).to_have_text(f"Last sent: {view.tokens:,} tokens")
    expect(visitor.find(".sent-line")).to_contain_text(f"window {view.by_kind()['window']:,}")
    expect(visitor.find(".sent-line")).to_contain_text(f"1 tool {quire.count_tools([TOOL]) - 12}")
    now = visitor.ask("/view?against=call")
    expect(visitor.find(".gauge b")).to_have_text(f"{now['tokens']:,}")
    assert now["tokens"] != view.tokens
    visitor.find(".sent-note .more").click()
    expect(visitor.find(".screen-model .message")).to_have_count(len(view.openai()))
    expect(visitor.find(".screen-model .model-summary")).to_contain_text(f"{view.tokens:,} of 8,000")
    expect(visitor.find(".screen-model .sent-note")).to_contain_text(f"Now: {now['tokens']:,} tokens.")
    expect(visitor.find(".screen-model .messages")).to_contain_text("#counter_1=0#")
    reasons = visitor.find(".screen-model .recalled-pages")
    expect(reasons).to_have_count(1)
    expect(reasons).to_contain_text(f"mem-1 1.00 {view.recalled[0].reason} mem-0")
    visitor.find(".screen-model [data-value=now]").click()
    expect(visitor.find(".screen-model .message")).to_have_count(len(now["messages"]))


def test_a_row_of_the_timeline_carries_the_text(visit: Opener) -> None:
    visitor = visit("timeline")
    row = visitor.find(".entry", "请把要点再说一遍，然后结束。")
    expect(row).to_have_count(1)
    row.click()
    expect(visitor.find(".entry-panel .entry-said")).to_have_text("请把要点再说一遍，然后结束。")
