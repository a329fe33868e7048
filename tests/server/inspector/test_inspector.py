"""The inspector in a real browser: a user opens it, reads, and changes something."""

import re

from playwright.sync_api import Route

import quire
from tests.server.inspector.conftest import Opener
from tests.server.inspector.visitor import Visitor, expect
from tests.server.sample_library import BUDGET, NAME


def _seq(visitor: Visitor) -> int:
    found: int = visitor.ask("")["seq"]
    return found


def test_the_library_lists_every_context_and_opens_one(visit: Opener) -> None:
    visitor = visit()
    expect(visitor.find(".context-row", "travel-desk")).to_have_count(1)
    names = set(visitor.find(".context-name").all_inner_texts())
    assert names >= {"coding-agent", "coding-agent-what-if", "travel-desk", "客服-机票改签"}
    visitor.page.fill("input[type=search]", "客服")
    expect(visitor.find(".context-row")).to_have_count(1)
    visitor.find(".context-row").click()
    expect(visitor.find("h1")).to_have_text("客服-机票改签")
    expect(visitor.find(".cell").first).to_be_visible()


def test_the_map_gives_each_piece_its_share_of_the_budget(visit: Opener) -> None:
    visitor = visit("window")
    expect(visitor.find(".cell").first).to_be_visible()
    view = visitor.ask("/view?against=call")
    expect(visitor.find(".gauge b")).to_have_text(f"{view['tokens']:,}")
    area: dict[str, float] = visitor.page.evaluate(
        """() => {
          const width = (node) => node.getBoundingClientRect().width;
          const sum = (found) => [...document.querySelectorAll(found)].reduce((all, node) => all + width(node), 0);
          return {cells: sum('.cell'), lanes: sum('.lane'), cached: sum('.cached')};
        }"""
    )
    assert abs(area["cells"] / area["lanes"] - view["tokens"] / BUDGET) < 0.01
    assert abs(area["cached"] / area["lanes"] - view["prefix"]["tokens"] / BUDGET) < 0.01


def test_dragging_the_budget_shows_the_changes(visit: Opener) -> None:
    visitor = visit("window")
    expect(visitor.find(".cell").first).to_be_visible()
    before = visitor.find(".gauge b").inner_text()
    box = visitor.find("#budget").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    visitor.page.mouse.move(box["x"] + box["width"] / 2, middle)
    visitor.page.mouse.down()
    for step in range(1, 9):
        visitor.page.mouse.move(box["x"] + box["width"] * (0.5 - step * 0.02), middle)
    visitor.page.mouse.up()
    expect(visitor.find(".changes h2")).to_contain_text("At ")
    expect(visitor.find(".gauge b")).not_to_have_text(before)
    expect(visitor.find(".changes .page-row").first).to_contain_text("folded")
    assert visitor.find(".lane.beyond").count() > 0
    assert _seq(visitor) == visitor.ask("/history?order=desc&limit=1")["entries"][0]["seq"]
    visitor.find(".budget .button").click()
    expect(visitor.find(".gauge b")).to_have_text(before)


def test_a_budget_that_is_too_small_is_explained(visit: Opener) -> None:
    visitor = visit("window", refusals=True)
    expect(visitor.find(".cell").first).to_be_visible()
    visitor.page.fill(".budget-number", "50")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".screen-window .problem")).to_contain_text("irreducible_floor")
    visitor.page.keyboard.press("Escape")
    visitor.find(".budget .button").click()
    expect(visitor.find(".screen-window .problem")).to_have_count(0)


def test_a_folder_opens_and_a_page_is_hidden_and_shown_again(visit: Opener) -> None:
    visitor = visit("pages")
    folder = visitor.find(".tree-row", "Ticket PAY-4471")
    folder.locator(".twisty").click()
    note = visitor.find(".tree-row", "退款名单")
    note.click()
    panel = visitor.find(".panel")
    expect(panel).to_contain_text("必须在周五 17:00 之前")
    visitor.find("#why").click()
    expect(visitor.find(".why")).to_contain_text("Shown whole.")
    panel.locator("[data-operation=hide]").click()
    expect(note.locator(".chip.hidden")).to_be_visible()
    expect(visitor.find(".why")).to_contain_text("Folded to one line.")
    visitor.find(".notice .button").click()
    expect(note.locator(".chip.hidden")).to_have_count(0)
    entries = visitor.ask("/history?order=desc&limit=2")["entries"]
    assert [entry["operation"] for entry in entries] == ["undo", "hide"]


def test_a_refusal_is_shown_where_it_happened(visit: Opener) -> None:
    visitor = visit("pages", refusals=True)
    visitor.find(".tree-row", "System prompt").click()
    visitor.find(".panel [data-operation=hide]").click()
    expect(visitor.find(".panel .problem")).to_contain_text("pinned")


def test_the_cold_archive_is_shown_and_a_page_is_recalled(visit: Opener) -> None:
    visitor = visit("pages")
    visitor.find(".tree-row", "Ticket PAY-4471").locator(".twisty").click()
    expect(visitor.find(".tree-row", "Words of the finance team")).to_have_count(0)
    visitor.page.check("#cold")
    cold = visitor.find(".tree-row", "Words of the finance team")
    expect(cold.locator(".chip.cold")).to_be_visible()
    cold.click()
    visitor.find(".panel [data-operation=recall]").click()
    expect(cold.locator(".chip.cold")).to_have_count(0)


def test_a_page_is_moved_edited_and_removed(visit: Opener) -> None:
    visitor = visit("pages")
    visitor.find(".tree-row", "Ticket PAY-4471").locator(".twisty").click()
    visitor.find(".tree-row", "How the gateway keeps keys").click()
    panel = visitor.find(".panel")
    panel.locator("[data-operation=move]").click()
    visitor.page.fill("dialog [name=target]", "mem-0")
    visitor.find("dialog .primary").click()
    expect(panel.locator(".path")).to_have_text("mem-0")
    panel.locator("[data-operation=edit]").click()
    visitor.page.fill("dialog [name=name]", "网关如何保存密钥")
    visitor.find("dialog .primary").click()
    expect(visitor.find(".tree-row", "网关如何保存密钥")).to_be_visible()
    panel.locator("[data-operation=remove]").click()
    visitor.find("dialog .danger").click()
    expect(visitor.find(".tree-row", "网关如何保存密钥")).to_have_count(0)


def test_chinese_words_are_found_with_their_passage(visit: Opener) -> None:
    visitor = visit("search")
    visitor.page.fill(".search-field", "退款")
    expect(visitor.find(".hit").first).to_be_visible()
    marked = visitor.find(".hit mark").all_inner_texts()
    assert marked
    assert set(marked) == {"退款"}
    visitor.page.fill(".search-field", "the")
    expect(visitor.find(".hit .chip", "folded").first).to_be_visible()  # no page that was only folded is "archived"
    hits = visitor.ask("/search?q=the&limit=20")["hits"]
    assert {hit["folded"] for hit in hits if hit["lifecycle"] == "hot"} == {True}
    assert set(visitor.find(".hit .chip").all_inner_texts()) <= {"folded", "cold-archived"}
    visitor.page.fill(".search-field", "退款")
    visitor.find(".hit", "退款名单").first.click()
    expect(visitor.find(".panel-name")).to_have_text("退款名单")
    visitor.page.fill(".search-field", "zzyzx")
    expect(visitor.find(".search-sum")).to_have_text("No results.")


def test_a_rollback_is_previewed_made_and_taken_back(visit: Opener) -> None:
    visitor = visit("timeline")
    messages = len(visitor.ask("/messages?limit=1000")["messages"])
    visitor.find(".entry", "Fold").first.click()
    visitor.find("[data-act=rollback]").click()
    expect(visitor.find("dialog .preview")).to_contain_text("would be removed")
    assert len(visitor.ask("/messages?limit=1000")["messages"]) == messages
    visitor.find("dialog .danger").click()
    expect(visitor.find(".notice")).to_contain_text("Rolled back to entry")
    assert visitor.ask("/history?order=desc&limit=1")["entries"][0]["operation"] == "rollback"
    assert len(visitor.ask("/messages?limit=1000")["messages"]) < messages
    visitor.find(".notice .button").click()
    expect(visitor.find(".notice")).to_have_count(0)
    assert len(visitor.ask("/messages?limit=1000")["messages"]) == messages


def test_the_timeline_shows_batches_folds_and_checkpoints_and_forks(visit: Opener) -> None:
    visitor = visit("timeline")
    expect(visitor.find(".entry", "Batch started")).to_be_visible()
    inside = visitor.page.evaluate(
        "[...document.querySelectorAll('.entry')].map(e => e.style.getPropertyValue('--batch'))"
    )
    assert inside.count("1") == 4  # the start of a batch, two messages, and its end
    visitor.page.select_option("select[name=operation]", "fold")
    expect(visitor.find(".entry[data-kind=fold]")).to_have_count(2)
    expect(visitor.find(".entry")).to_have_count(2)
    visitor.page.select_option("select[name=operation]", "")
    visitor.find(".screen-timeline .button", "Checkpoint").click()
    visitor.page.fill("dialog [name=name]", "第一稿")
    visitor.find("dialog .primary").click()
    expect(visitor.find(".chip.checkpoint", "第一稿")).to_be_visible()
    visitor.find("[data-act=fork]").click()
    name = f"另一条路 {visitor.context}"
    visitor.page.fill("dialog [name=name]", name)
    visitor.find("dialog .primary").click()
    expect(visitor.find("h1")).to_have_text(name)


def test_the_page_follows_a_running_agent(visit: Opener) -> None:
    visitor = visit("window")
    expect(visitor.find(".live")).to_have_text("live")
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        agent.user("Is the 幂等键 the same for every retry?")
        expect(visitor.find(".cell", "Is the 幂等键")).to_be_visible()
        visitor.page.keyboard.press("2")
        expect(visitor.find(".tree-row", "run_checks")).to_be_visible()
        visitor.find(".tree").press("End")
        expect(visitor.find(".tree-row", "Is the 幂等键")).to_have_count(1)
        agent.assistant("Yes, since commit 4be90d7.")
        expect(visitor.find(".figures .seq")).to_have_text(f"seq {agent.seq}")
        visitor.page.keyboard.press("3")
        expect(visitor.find(".message", "Yes, since commit 4be90d7.")).to_have_count(1)


def test_a_change_between_the_first_figures_and_the_stream_is_shown(visit: Opener) -> None:
    visitor = visit()
    context = visit.stand.copy()
    seen: list[int] = []

    def write_first(route: Route) -> None:
        with quire.open(visit.stand.path, context, budget=BUDGET) as agent:
            seen.append(agent.seq)
            agent.user("written before the stream of changes starts")
            seen.append(agent.seq)
        route.continue_()

    visitor.page.route("**/events*", write_first, times=1)
    visitor.go("window", context)
    expect(visitor.find(".figures .seq")).to_have_text(f"seq {seen[1]}")
    assert seen[1] > seen[0]


def test_a_change_between_the_first_view_and_the_first_figures_is_shown(visit: Opener) -> None:
    visitor = visit()
    context = visit.stand.copy()
    waiting: list[Route] = []
    written: list[int] = []

    def answer_then_write(route: Route) -> None:
        answer = route.fetch()
        with quire.open(visit.stand.path, context, budget=BUDGET) as agent:
            agent.user("written after the first view")
            written.append(agent.seq)
        for held in waiting:
            held.continue_()
        route.fulfill(response=answer)

    def wait(route: Route) -> None:
        if written:
            route.continue_()
        else:
            waiting.append(route)

    visitor.page.route(f"**/contexts/{context}/view*", answer_then_write, times=1)
    visitor.page.route(f"**/contexts/{context}", wait, times=1)
    visitor.go("window", context)
    expect(visitor.find(".figures .seq")).to_have_text(f"seq {written[0]}")
    expect(visitor.find(".gauge b")).to_have_text(f"{visitor.ask('/view?against=call')['tokens']:,}")


def test_every_provider_form_is_shown_exactly_as_it_is_sent(visit: Opener) -> None:
    visitor = visit("model")
    for form in ("anthropic", "responses", "openai"):
        visitor.page.click(f"[data-value={form}]")
        visitor.page.click("[data-value=true]")
        view = visitor.ask(f"/view?format={form}")
        wanted = ([view["system"]] if view["system"] else []) + view["messages"]
        expect(visitor.find(".message")).to_have_count(len(wanted))
        shown = visitor.page.evaluate("[...document.querySelectorAll('.json')].map(e => JSON.parse(e.textContent))")
        assert shown == wanted
        visitor.page.click("[data-value=false]")
        expect(visitor.find(".message .block").first).to_be_visible()


def test_a_budget_that_is_being_typed_is_not_overwritten_by_a_change(visit: Opener) -> None:
    visitor = visit("window")
    expect(visitor.find(".cell").first).to_be_visible()
    visitor.page.fill(".budget-number", "1000000")
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        agent.user("and then?")
        expect(visitor.find(".figures .seq")).to_contain_text(f"{agent.seq:,}")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".gauge")).to_contain_text("1,000,000")
    expect(visitor.find(".budget-number")).to_have_value("1,000,000")


def test_a_very_long_line_is_shown_in_blocks_and_nothing_of_it_is_lost(visit: Opener) -> None:
    visitor = visit("window")
    long = "😀长" * 40_000  # position 10,000 is inside a surrogate pair
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        agent.user(long)
        expect(visitor.find(".figures .seq")).to_contain_text(f"{agent.seq:,}")
    visitor.page.fill(".budget-number", "1000000")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".gauge")).to_contain_text("1,000,000")
    visitor.find("#tab-model").click()
    expect(visitor.find("#tab-model")).to_have_attribute("aria-selected", "true")
    message = visitor.find(".message", "😀长😀长")
    for _ in range(500):  # the list is drawn in blocks
        if message.locator(".show-more").count():
            break
        visitor.page.locator(".list-end").scroll_into_view_if_needed()
        visitor.page.wait_for_timeout(20)
    expect(message.locator(".piece")).to_have_count(1)
    more = message.locator(".show-more")
    expect(more).to_contain_text("characters left")
    more.click()
    expect(message.locator(".piece")).to_have_count(11)
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        agent.user("and then?")  # redraws the screen; opened parts stay open
    expect(visitor.find(".message", "and then?")).to_be_visible()
    expect(message.locator(".piece")).to_have_count(11)
    more.click()
    expect(more).to_have_count(0)
    assert message.locator("pre").evaluate("node => node.textContent") == long
    pieces: list[str] = message.locator(".piece").all_inner_texts()
    assert set("".join(pieces)) == {"😀", "长"}  # no half of a surrogate pair


def test_the_first_break_of_the_cache_is_marked_and_named(visit: Opener) -> None:
    visitor = visit("model")
    expect(visitor.find(".message.is-cached").first).to_be_visible()
    visitor.go("pages")
    visitor.find(".tree-row", "apply_patch").first.click()
    visitor.find(".panel [data-operation=hide]").click()
    hidden = visitor.find(".panel-top .mono").inner_text()
    visitor.go("model")
    expect(visitor.find(".break")).to_contain_text(f"Page {hidden} was hidden")
    cached = visitor.find(".message.is-cached").count()
    assert 0 < cached < visitor.find(".message").count()
    visitor.go("window")
    visitor.find(".cache-note .more").click()
    expect(visitor.find(".break")).to_be_in_viewport()
    assert visitor.ask("/view?against=call")["prefix"]["messages"] == cached


def test_two_views_are_compared_message_by_message(visit: Opener) -> None:
    visitor = visit("compare")
    fold = visitor.ask("/history?operation=fold&limit=1")["entries"][0]["seq"]
    visitor.page.fill("[name=left-seq]", str(fold - 1))
    visitor.page.fill("[name=right-seq]", str(fold))
    visitor.page.fill("[name=left-budget]", "100000")
    visitor.page.click(".compare-form [type=submit]")
    expect(visitor.find(".change").first).to_be_visible()
    answer = visitor.ask(f"/diff?left_seq={fold - 1}&right_seq={fold}&left_budget=100000&right_budget={BUDGET}")
    differing = [change for change in answer["changes"] if change["op"] != "same"]
    expect(visitor.find(".change")).to_have_count(len(differing))
    visitor.find(".page-changes summary").click()
    assert set(visitor.find(".page-changes .state-words").all_inner_texts()) <= {
        "not shown",
        "not shown → folded",
        "not shown → whole",
        "whole → folded",
    }
    visitor.page.fill("[name=left-seq]", str(fold))
    visitor.page.fill("[name=left-budget]", str(BUDGET))
    visitor.page.click(".compare-form [type=submit]")
    expect(visitor.find(".compare-sum")).to_contain_text("All messages are the same")


def test_a_long_text_is_shown_to_its_end(visit: Opener) -> None:
    visitor = visit("pages")
    text = f"😀{'x' * 98}\n" * 2_600
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        agent.pages.create_detail_page("long log", "", text, "mem-0")
    visitor.find(".tree-row", "long log").click()
    more = visitor.find(".panel .content > .button")
    for left in (212_000, 12_000):
        more.click()
        expect(more).to_contain_text(f"{left:,} characters left")
    more.click()
    expect(more).to_have_count(0)
    assert visitor.find(".panel .content pre").evaluate("node => node.textContent") == text


def test_entries_that_come_after_the_filter_changed_are_not_listed(visit: Opener) -> None:
    visitor = visit("pages")
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        for number in range(250):
            agent.pages.update_page("mem-0", description=f"Change {number}")
    held: list[Route] = []
    visitor.page.route("**/history?**before=**", lambda route: held.append(route))
    visitor.go("timeline")
    expect(visitor.find(".entry").first).to_be_visible()
    with visitor.page.expect_request("**/history?**before=**"):
        visitor.page.evaluate("document.querySelector('.timeline').scrollTop = 1e6")
    visitor.page.select_option("[name=operation]", "fold")
    expect(visitor.find(".entry").first).to_contain_text("Fold")
    folds = len(visitor.ask("/history?operation=fold&limit=1000")["entries"])
    with visitor.page.expect_response("**/history?**before=**"):
        held[0].continue_()
    visitor.page.wait_for_timeout(50)
    expect(visitor.find(".entry")).to_have_count(folds)
    visitor.page.unroute("**/history?**before=**")


def test_a_very_long_line_that_changed_is_compared_in_blocks(visit: Opener) -> None:
    visitor = visit("compare", refusals=True)  # exceeds the server's budget
    with quire.open(visit.stand.path, visitor.context, budget=BUDGET) as agent:
        page = agent.pages.create_detail_page("log", "one line", "长" * 25_000, "sys-0")
        before = agent.seq
        agent.pages.set_detail(page, "短" * 12_000)
        after = agent.seq
    for side, seq in (("left", before), ("right", after)):
        visitor.page.fill(f"[name={side}-seq]", str(seq))
        visitor.page.fill(f"[name={side}-budget]", "1000000")
    visitor.page.click(".compare-form [type=submit]")
    expect(visitor.find(".line.removed", "长长").locator(".piece")).to_have_count(3)
    expect(visitor.find(".line.added", "短短").locator(".piece")).to_have_count(2)


def test_a_live_window_is_shown_and_acted_on(visit: Opener) -> None:
    visitor = visit("apps")
    card = visitor.find(".window-card")
    expect(card).to_contain_text("写回归测试")
    card.locator(".button", has_text="add").click()
    visitor.page.fill("dialog [name=text]", "发退款通知")
    visitor.find("dialog .primary").click()
    expect(card).to_contain_text("发退款通知")


def test_language_and_theme_follow_the_browser_and_can_be_chosen(visit: Opener) -> None:
    visitor = visit("window", locale="zh-CN", color_scheme="dark")
    expect(visitor.find("#tab-model")).to_have_text("模型所见")
    expect(visitor.find("html")).to_have_attribute("lang", "zh-CN")
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    dark = visitor.page.evaluate(colour)
    visitor.page.keyboard.press("t")  # light
    assert visitor.page.evaluate(colour) != dark
    visitor.page.keyboard.press("t")  # dark, independent of the system
    assert visitor.page.evaluate(colour) == dark
    visitor.find(".switch", "EN").click()
    expect(visitor.find("#tab-model")).to_have_text("What the model sees")
    visitor.page.reload()
    expect(visitor.find("#tab-model")).to_have_text("What the model sees")


def test_the_keyboard_is_enough(visit: Opener) -> None:
    visitor = visit("window")
    keys = visitor.page.keyboard
    keys.press("2")
    visitor.find(".tree").focus()
    expect(visitor.find(".tree-row", "System prompt")).to_be_visible()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        keys.press(key)
    expect(visitor.find(".tree-row", "Rules of this ticket")).to_be_visible()
    for key in ("ArrowDown", "ArrowDown", "h"):
        keys.press(key)
    expect(visitor.find(".tree-row", "退款名单").locator(".chip.hidden")).to_be_visible()
    keys.press("w")
    expect(visitor.find(".panel-name")).to_have_text("退款名单")
    expect(visitor.find(".why")).to_contain_text("Folded to one line.")
    keys.press("Escape")
    expect(visitor.find(".panel")).to_be_hidden()
    keys.press("/")
    expect(visitor.find(".search-field")).to_be_focused()
    visitor.find(".search-field").blur()
    keys.press("1")
    expect(visitor.find(".search-field")).to_be_hidden()
    keys.press("6")
    expect(visitor.find(".search-field")).to_be_focused()
    visitor.find(".search-field").blur()
    keys.press("?")
    expect(visitor.find("dialog .keys")).to_be_visible()


def test_nothing_overflows_on_a_phone_and_every_control_has_a_name(visit: Opener) -> None:
    visitor = visit("window", width=390, height=844, locale="zh-CN")
    for tab in ("window", "pages", "model", "compare", "timeline", "search", "apps"):
        visitor.go(tab)
        if tab == "pages":
            visitor.find(".tree-row").nth(1).click()
            expect(visitor.find(".panel")).to_be_visible()
        width = visitor.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, tab
        nameless = visitor.page.evaluate(
            """[...document.querySelectorAll('button, a, input, select, textarea, [role=tree], [role=listbox]')]
               .filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"""
        )
        assert nameless == [], tab


def test_the_page_needs_the_token_and_removes_it_from_the_address(visit: Opener) -> None:
    visitor = visit("window", refusals=True)
    assert "token" not in visitor.page.url
    visitor.page.evaluate("sessionStorage.setItem('quire-token', 'wrong')")
    visitor.page.reload()
    expect(visitor.find(".gate h1")).to_be_visible()
    visitor.page.fill("[name=token]", visitor.server.token)
    visitor.page.keyboard.press("Enter")
    expect(visitor.find("h1")).to_have_text(re.compile(NAME))
