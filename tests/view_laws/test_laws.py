"""The laws of every view: within the budget, legal, complete where required, stable, and nothing unreachable."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Context, IrreducibleFloor, Storage
from quire.formats import read_log
from tests.seeds import SEED
from tests.strict_provider import Body, Reply, Request, anthropic_answers, check_request
from tests.strict_provider.signatures import find_thinking
from tests.view_laws.laws import Forms, check_view, check_walk
from tests.view_laws.steps import new_walk
from tests.view_laws.walks import COUNTER, MODEL, Model

STATES, LONG = 1_200, 1_000_000
SHARDS = 8
STEPS_OF_A_WALK, FEWER = 30, 15
"""In the usual run two of three walks have fewer steps: a state after many steps costs more, and more walks cover more
budgets and configurations. With --long all have many.
"""
CORPUS = Path(__file__).parents[1] / "formats/corpus"


def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.mark.parametrize("shard", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, SHARDS))])
def test_every_state_on_random_walks_keeps_every_law(shard: int, request: pytest.FixtureRequest) -> None:
    wanted = (LONG if is_long(request) else STATES) // SHARDS
    number, states = SEED + shard, 0
    while states < wanted:
        states += check_walk(number, STEPS_OF_A_WALK if is_long(request) or number % 3 == 0 else FEWER)
        number += SHARDS
    assert number < SEED + SHARDS * (2 + wanted // (FEWER // 3))  # most steps lead to a view


OF_A_TAIL = ("recall", "budget_line")


def walk_forms(number: int, *, storage: Storage | None = None, reopens: bool = False) -> list[str]:
    """Return what all views of a walk send, its steps with their error codes, and its messages.

    It reserves no index and has no tail: only a handle knows what it reserved, and which view a reply answers.
    """
    walk = new_walk(number, without=("reserve", "window"), storage=storage, reopens=reopens)
    found: list[str] = []
    for _ in range(FEWER):
        walk.step()
        walk.ctx.refresh()
        options = {name: value for name, value in walk.options().items() if name not in OF_A_TAIL}
        try:
            found.append(Forms(walk.render(**options)).text())
        except IrreducibleFloor:
            found.append("floor")
    walk.ctx.refresh()
    return [*found, *walk.trace, *(message.text for message in walk.ctx.messages(all=True))]


def test_views_of_new_handles_are_those_of_one_handle(request: pytest.FixtureRequest) -> None:
    """A view that grew step by step equals one that is drawn at once, and so do the folds."""
    for number in range(SEED, SEED + (2_000 if is_long(request) else 8)):
        assert walk_forms(number) == walk_forms(number, reopens=True), f"QUIRE_SEED={number}"


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_walk_shows_the_same_in_every_storage(kind: str, tmp_path: Path) -> None:
    for number in (SEED + 3, SEED + 4):
        with closing(quire.open_storage(f"{kind}:{tmp_path}/{number}")) as storage:
            assert walk_forms(number, storage=storage) == walk_forms(number)


def test_a_view_that_is_imported_as_a_history_needs_no_repair_and_is_the_same_again() -> None:
    for number in range(SEED, SEED + 12):
        walk = new_walk(number)
        for _ in range(12):
            walk.step()
        try:
            view = walk.ctx.render()
        except IrreducibleFloor:
            continue
        forms = Forms(view)
        prompt = [{"role": "system", "content": forms.anthropic["system"]}] if "system" in forms.anthropic else []
        assert imported(forms.openai).openai() == forms.openai
        assert imported(forms.responses).responses() == forms.responses
        assert imported([*prompt, *forms.anthropic["messages"]]).anthropic()["messages"] == forms.anthropic["messages"]


def imported(sent: list[Any]) -> quire.View:
    """Return the view of a new context to which the messages of a request are imported."""
    ctx = quire.open("memory:", preamble="", key="elm-200", counter=COUNTER)
    report = ctx.import_messages(sent)
    assert {finding.kind for finding in report.findings} <= {"further system prompt", "late system message"}
    return ctx.render()


# Recorded conversations

TALKS = {330: ("long", "loop", "parallel"), 2_000: ("chat", "call")}
"""The talks of the corpus that the usual run replays at each budget; each talk is there in many formats."""
RECORDED = [path for path in sorted(CORPUS.rglob("*.json*")) if ".times." not in path.name]


@pytest.mark.parametrize("budget", list(TALKS))
def test_recorded_conversations_keep_the_laws_at_every_message(budget: int, request: pytest.FixtureRequest) -> None:
    folds = 0
    for path in RECORDED:
        if not is_long(request) and path.name.partition(".")[0] not in TALKS[budget]:
            continue
        for talk in read_log(path).conversations:
            with quire.open("memory:", budget=budget, counter=COUNTER) as ctx:
                folds += replay(ctx, talk.messages)
    assert (folds > 8) == (budget < 1_000)


def replay(ctx: Context, messages: list[object]) -> int:
    """Import a conversation message by message, and check every view. Return the number of folds."""
    model, folds = Model("anthropic"), 0
    for message in messages:
        ctx.import_messages([message])
        if any(each.role == "user" for each in ctx.messages()):
            view = ctx.render()
            folds += view.fold is not None
            check_view(view, Forms(view), ctx.budget, model)
    assert ctx.check() == []
    return folds


# Thinking


def signed_history(turns: int) -> tuple[Model, list[Body]]:
    """Return the messages of turns in Anthropic's form, with thinking that is signed over what was before it."""
    model, messages = Model("anthropic"), list[Body]()
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn}: " + "and the pump? " * 20})
        request = Request("anthropic", {"model": MODEL, "max_tokens": 1_000, "messages": messages})
        answer = anthropic_answers.make_answer(request, Reply(f"Answer {turn}.", (), ("So.",)), model.state, turn)
        messages.append({"role": "assistant", "content": answer["content"]})
    return model, messages


@pytest.mark.parametrize(("budget", "preamble"), [(10_000, ""), (10_000, None), (900, None)])
def test_thinking_of_an_imported_history_is_sent_only_after_what_its_model_saw(
    budget: int, preamble: str | None
) -> None:
    model, messages = signed_history(12)
    ctx = quire.open("memory:", budget=budget, preamble=preamble)
    ctx.import_messages(messages)
    ctx.user("And now?")
    body = model.ask(ctx.render(), "anthropic")
    assert check_request("anthropic", body, model.state) is None


def test_thinking_goes_back_while_nothing_before_it_changes_and_not_after_that() -> None:
    ctx, model = quire.open("memory:", budget=100_000), Model("anthropic")
    sent = []
    for turn in range(6):
        if turn == 4:
            ctx.system("Be brief.")
        ctx.user(f"Question {turn}")
        view = ctx.render()
        body = model.ask(view, "anthropic")
        assert check_request("anthropic", body, model.state) is None
        sent.append(len(find_thinking(Request("anthropic", body))[0]))
        ctx.add(model.answer(view, Reply(f"Answer {turn}.", (), (f"Thought {turn}.",))), view=view)
    assert sent == [0, 1, 2, 3, 0, 1]
