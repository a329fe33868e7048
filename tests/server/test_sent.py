"""The last view that was sent, over HTTP, as the inspector asks for it."""

import quire
from tests.server.conftest import Api, Talk
from tests.view.test_sent import TOOL, agent, talk


def test_the_server_shows_what_the_program_sent(api: Api, library: quire.Library) -> None:
    ctx = agent(library.storage)
    view = talk(ctx, 4, recall=0.3, tools=[TOOL])
    now = api.get("/api/contexts/agent/view", against="call")
    sent = api.get("/api/contexts/agent/sent")
    assert sent["tokens"] == view.tokens == sent["view"]["tokens"]
    assert sent["exact"] is True
    assert sent["view"]["messages"] == view.openai()
    kinds: dict[str, int] = {}
    for item in sent["view"]["items"]:
        kinds[item["kind"]] = kinds.get(item["kind"], 0) + item["tokens"]
    assert kinds == view.by_kind()
    assert sent["tools"].keys() == {"order_status"}
    assert sent["reserved"] == quire.count_tools([TOOL])
    assert now["tokens"] != view.tokens
    assert now["prefix"]["tokens"] == view.tokens  # the beginning of the view now is the view that was sent
    anthropic = api.get("/api/contexts/agent/sent", format="anthropic")
    assert anthropic["view"]["messages"] == view.anthropic()["messages"]


def test_a_context_without_a_reply_has_no_sent_view(api: Api, talk: Talk) -> None:
    assert api.get(f"{talk.path}/sent")["view"] is None


def test_rows_of_the_history_carry_their_text(api: Api, talk: Talk) -> None:
    entries = api.get(f"{talk.path}/history", operation="user")["entries"]
    assert [entry["text"] for entry in entries] == [f"Question {turn}: where is 西雅图?" for turn in range(6)]
