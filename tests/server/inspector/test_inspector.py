"""The inspector in a real browser: stories of a user who opens it, reads, and changes something."""

import json

import httpx
import pytest
from playwright.sync_api import expect

import quire
import quire.gateway
from quire.testing import StubProvider
from tests.server.inspector.conftest import BUDGET, Opener
from tests.surfaces.hostile_texts import HOSTILE
from tests.surfaces.http_service import TOKEN

pytestmark = pytest.mark.servers
SCRIPTED = """() => [...document.querySelectorAll('*')].filter(node => [...node.attributes].some(({name, value}) =>
  name.startsWith('on') || name === 'srcdoc' || (['href', 'src', 'data'].includes(name)
  && !value.startsWith('#') && !value.startsWith('/static/')))).map(node => node.outerHTML.slice(0, 200))"""
"""Finds elements with code of their own, or with an address that is not the inspector's."""


def test_the_library_lists_every_context_and_opens_one_with_the_token_only(visit: Opener) -> None:
    visitor = visit("window", refusals=True)
    visitor.page.goto(f"{visitor.address}#/")
    expect(visitor.find(".context-row", visitor.name)).to_have_count(1)
    visitor.page.fill("input[type=search]", "客服")
    expect(visitor.find(".context-row")).to_have_count(1)
    visitor.find(".context-row").click()
    expect(visitor.find("h1")).to_have_text("客服-机票改签")
    expect(visitor.find(".cell").first).to_be_visible()
    assert "token" not in visitor.page.url
    visitor.page.evaluate("sessionStorage.setItem('quire-token', 'wrong')")
    visitor.page.reload()
    expect(visitor.find(".gate h1")).to_be_visible()
    visitor.page.fill("[name=token]", TOKEN)
    visitor.page.keyboard.press("Enter")
    expect(visitor.find("h1")).to_contain_text("客服-机票改签")


def test_the_map_shows_the_view_and_what_another_budget_changes(visit: Opener) -> None:
    visitor = visit("window", refusals=True)
    expect(visitor.find(".cell").first).to_be_visible()
    seq = visitor.ask("")["seq"]
    tokens = visitor.ask("/view?against=call")["tokens"]
    expect(visitor.find(".gauge b")).to_have_text(f"{tokens:,}")
    wide = "found => [...document.querySelectorAll(found)].reduce((all, e) => all + e.getBoundingClientRect().width, 0)"
    share = visitor.page.evaluate(wide, ".cell") / visitor.page.evaluate(wide, ".lane")
    assert abs(share - tokens / BUDGET) < 0.01
    visitor.page.fill(".budget-number", "1200")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".changes h2")).to_contain_text("1,200")
    expect(visitor.find(".changes .page-row", "→").first).to_be_visible()
    visitor.page.fill(".budget-number", "50")
    visitor.page.keyboard.press("Enter")
    expect(visitor.find(".screen-window .problem")).to_contain_text("irreducible_floor")
    visitor.page.keyboard.press("Escape")
    visitor.find(".budget .button").click()
    expect(visitor.find(".gauge b")).to_have_text(f"{tokens:,}")
    assert visitor.ask("")["seq"] == seq


def test_a_page_is_opened_hidden_explained_and_shown_again(visit: Opener) -> None:
    visitor = visit("pages", refusals=True)
    visitor.find(".tree-row", "Ticket PAY-4471").locator(".twisty").click()
    note = visitor.find(".tree-row", "退款名单")
    note.click()
    expect(visitor.find(".panel")).to_contain_text("周五 17:00 之前")
    visitor.find("#why").click()
    expect(visitor.find(".why")).to_contain_text("Shown whole.")
    visitor.find(".panel [data-operation=hide]").click()
    expect(note.locator(".chip.hidden")).to_be_visible()
    expect(visitor.find(".why")).to_contain_text("Folded to one line.")
    visitor.find(".notice .button").click()
    expect(note.locator(".chip.hidden")).to_have_count(0)
    assert visitor.newest(2) == ["undo", "hide"]
    visitor.find(".tree-row", "You repair").or_(visitor.find(".tree-row", "System prompt")).first.click()
    visitor.find(".panel [data-operation=hide]").click()
    expect(visitor.find(".panel .problem")).to_be_visible()  # a refusal is shown where it happened


def test_pages_are_recalled_moved_edited_and_removed(visit: Opener) -> None:
    visitor = visit("pages")
    visitor.find(".tree-row", "Ticket PAY-4471").locator(".twisty").click()
    expect(visitor.find(".tree-row", "Words")).to_have_count(0)
    visitor.page.check("#cold")
    cold = visitor.find(".tree-row", "Words")
    cold.click()
    panel = visitor.find(".panel")
    panel.locator("[data-operation=recall]").click()
    expect(cold.locator(".chip.cold")).to_have_count(0)
    visitor.find(".tree-row", "Keys").click()
    panel.locator("[data-operation=move]").click()
    visitor.page.fill("dialog [name=target]", "mem-0")
    visitor.find("dialog .primary").click()
    expect(panel.locator(".path")).to_have_text("mem-0")
    panel.locator("[data-operation=edit]").click()
    visitor.page.fill("dialog [name=name]", "密钥")
    visitor.find("dialog .primary").click()
    expect(visitor.find(".tree-row", "密钥")).to_be_visible()
    panel.locator("[data-operation=remove]").click()
    visitor.find("dialog .danger").click()
    expect(visitor.find(".tree-row", "密钥")).to_have_count(0)
    assert visitor.newest(4)[0] == "remove_page"


def test_chinese_words_are_found_with_their_passage(visit: Opener) -> None:
    visitor = visit("search")
    visitor.page.fill(".search-field", "退款")
    expect(visitor.find(".hit").first).to_be_visible()
    assert set(visitor.find(".hit mark").all_inner_texts()) == {"退款"}
    visitor.page.fill(".search-field", "zebra")
    expect(visitor.find(".hit")).to_have_count(0)


def test_a_rollback_is_previewed_made_and_taken_back(visit: Opener) -> None:
    visitor = visit("timeline")
    visitor.open().user("One more.")
    messages = visitor.ask("/messages?limit=1000")["messages"]
    visitor.find(".entry", "before the notes").first.click()
    visitor.find("[data-act=rollback]").click()
    expect(visitor.find("dialog .preview")).to_contain_text("would be removed")
    assert visitor.ask("/messages?limit=1000")["messages"] == messages
    visitor.find("dialog .danger").click()
    expect(visitor.find(".notice")).to_contain_text("Rolled back to entry")
    assert visitor.newest() == ["rollback"]
    assert len(visitor.ask("/messages?limit=1000")["messages"]) < len(messages)
    visitor.find(".notice .button").click()
    expect(visitor.find(".notice")).to_have_count(0)
    assert visitor.ask("/messages?limit=1000")["messages"] == messages


def test_a_checkpoint_is_named_and_a_fork_is_made_in_the_timeline(visit: Opener) -> None:
    visitor = visit("timeline")
    expect(visitor.find(".entry", "Batch started")).to_be_visible()
    visitor.find(".screen-timeline .button", "Checkpoint").click()
    visitor.page.fill("dialog [name=name]", "第一稿")
    visitor.find("dialog .primary").click()
    expect(visitor.find(".chip.checkpoint", "第一稿")).to_be_visible()
    visitor.find("[data-act=fork]").click()
    visitor.page.fill("dialog [name=name]", "另一条路")
    visitor.find("dialog .primary").click()
    expect(visitor.find("h1")).to_have_text("另一条路")
    assert visitor.service.library.exists("另一条路")


def test_the_page_follows_a_running_agent(visit: Opener) -> None:
    visitor = visit("window")
    expect(visitor.find(".live")).to_have_text("live")
    agent = visitor.open()
    agent.user("Is the 幂等键 the same for every retry?")
    expect(visitor.find(".cell", "Is the 幂等键")).to_be_visible()
    visitor.page.keyboard.press("3")
    agent.assistant("Yes, since commit 4be90d7.")
    expect(visitor.find(".message", "Yes, since commit 4be90d7.")).to_have_count(1)
    expect(visitor.find(".figures .seq")).to_have_text(f"seq {agent.seq}")


def test_every_providers_form_is_shown_as_it_is_sent_and_a_broken_cache_is_named(visit: Opener) -> None:
    visitor = visit("model")
    for form in ("anthropic", "responses", "openai"):
        visitor.page.click(f"[data-value={form}]")
        visitor.page.click("[data-value=true]")
        view = visitor.ask(f"/view?format={form}")
        wanted = ([view["system"]] if view["system"] else []) + view["messages"]
        expect(visitor.find(".message")).to_have_count(len(wanted))
        shown = [json.loads(text) for text in visitor.find(".json").all_text_contents()]
        assert shown == wanted
        visitor.page.click("[data-value=false]")
    agent = visitor.open()
    agent.user("And now?")
    agent.render()
    agent.assistant("It is repaired.")
    agent.pages.hide("mem-3")
    expect(visitor.find(".break")).to_contain_text("mem-3")
    assert 0 < visitor.find(".message.is-cached").count() < visitor.find(".message").count()


def test_what_the_model_saw_last_is_shown_beside_the_view_now(visit: Opener) -> None:
    visitor = visit("window")
    agent = visitor.open()
    agent.user("And INV-3?")
    view = agent.render()
    agent.assistant("It was paid twice too.")
    expect(visitor.find(".sent-line b")).to_have_text(f"Last sent: {view.tokens:,} tokens")
    visitor.find(".sent-note .more").click()
    expect(visitor.find(".screen-model .message")).to_have_count(len(view.openai()))
    visitor.find(".screen-model [data-value=now]").click()
    expect(visitor.find(".screen-model .message", "It was paid twice too.")).to_have_count(1)


def test_a_live_window_is_shown_and_acted_on(visit: Opener) -> None:
    visitor = visit("apps")
    card = visitor.find(".window-card")
    expect(card).to_contain_text("写回归测试")
    card.locator(".button", has_text="add").click()
    visitor.page.fill("dialog [name=text]", "发退款通知")
    visitor.find("dialog .primary").click()
    expect(card).to_contain_text("发退款通知")


def test_the_keyboard_both_languages_and_a_phone_are_enough(visit: Opener) -> None:
    visitor = visit("window", locale="zh-CN", viewport={"width": 390, "height": 844})
    expect(visitor.find("#tab-model")).to_have_text("模型所见")
    for tab in ("window", "pages", "model", "timeline", "search", "apps"):
        visitor.go(tab)
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        nameless = """[...document.querySelectorAll('button, a, input, select, textarea, [role=tree]')]
            .filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"""
        assert visitor.page.evaluate(nameless) == [], tab
    visitor = visit("window", locale="en-US")
    keys = visitor.page.keyboard
    keys.press("2")
    visitor.find(".tree").focus()
    expect(visitor.find(".tree-row", "System").first).to_be_visible()
    for key in ("ArrowDown", "ArrowDown", "w"):
        keys.press(key)
    expect(visitor.find(".why")).to_be_visible()
    keys.press("Escape")
    expect(visitor.find(".panel")).to_be_hidden()
    keys.press("/")
    expect(visitor.find(".search-field")).to_be_focused()
    visitor.find(".search-field").blur()
    keys.press("?")
    expect(visitor.find("dialog .keys")).to_be_visible()


def test_hostile_texts_are_text_everywhere(visit: Opener) -> None:
    visitor = visit("window", refusals=True)
    context = visitor.service.library.open(f"{visitor.name} {HOSTILE[1]}", budget=100_000)
    for n, text in enumerate(HOSTILE):
        context.pages.create_detail_page(text, text, text, "mem-0")
        context.user(text)
        call = {"id": f"{n} {text}", "type": "function", "function": {"name": text, "arguments": text}}
        context.assistant(text, [call])
        context.tool_result(f"{n} {text}", text)
    context.checkpoint(HOSTILE[0])
    for tab in ("window", "pages", "model", "timeline", "search"):
        visitor.go(tab, context.name)
        if tab == "search":
            visitor.page.fill(".search-field", HOSTILE[0])
        marks = {"window": ".cell", "pages": ".tree-row", "model": ".message", "timeline": ".entry", "search": ".hit"}
        expect(visitor.find(marks[tab]).first).to_be_visible()
        expect(visitor.find("h1")).to_have_text(context.name)
        assert visitor.page.evaluate(SCRIPTED) == [], tab
    visitor.go("model", context.name)
    expect(visitor.find(".message", HOSTILE[-1]).last).to_be_attached()
    shown = visitor.find(".messages").text_content() or ""
    assert [text for text in HOSTILE if text not in shown] == []


def test_a_session_of_the_gateway_is_shown_and_switched(visit: Opener) -> None:
    visitor = visit("window")
    upstream = StubProvider()
    body = {"model": "claude-fable-5-1", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
    store = visitor.service.library.storage
    with quire.gateway.start(store, anthropic=upstream.url, port=0) as gateway:
        for _ in range(2):
            httpx.post(f"{gateway.url}/v1/messages", json=body, headers={"x-quire-session": "mine"})
        visitor.page.goto(f"{visitor.address}#/gateway")
        card = visitor.find(".gateway-session", "mine")
        expect(card.locator(".gateway-requests dd")).to_have_text("2")
        card.get_by_text("fold", exact=True).click()
        expect(card.locator("[aria-pressed=true]")).to_have_text("fold")
    upstream.close()
    assert [session["chosen"] for session in visitor.service.get("/api/gateway/sessions")["sessions"]] == ["fold"]
