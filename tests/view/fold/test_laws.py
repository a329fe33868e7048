"""The laws of folding: it converges, never makes a view larger, is repeatable, can be undone, and shows few lines."""

import random

import pytest

import quire
from quire import CompressionConfig, ContentsPage, Context, IrreducibleFloor, PageIndex, ToolCall, View
from quire.model.tokens import EstimateCounter
from quire.view.parts import FoldResult

WORDS = ("pump", "阀门", "tank", "HAT136", "2024-05-20", "/var/log/app.log", "$201", "必须", "only", "ValueError", "🙂")


def speech(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def talk_on(ctx: Context, chance: random.Random, turn: int, most: int = 40) -> None:
    ctx.user(f"Question {turn}: {speech(chance, most)}")
    for step in range(chance.choice((0, 0, 1, 2))):
        ctx.assistant(tool_calls=[ToolCall(f"c{turn}-{step}", "look", '{"q": "\\u9600"}')])
        ctx.tool_result(f"c{turn}-{step}", speech(chance, 2 * most))
    ctx.assistant(f"Answer {turn}: {speech(chance, most)}")


def grown(seed: int, turns: int = 40, budget: int = 1_500, threshold: int | None = None) -> Context:
    """Return a conversation that was never drawn."""
    chance = random.Random(seed)
    ctx = quire.open("memory:", budget=budget, key="amber-123", compression=CompressionConfig(threshold=threshold))
    ctx.system("You are careful.")
    for turn in range(turns):
        talk_on(ctx, chance, turn)
    return ctx


def lines(view: View) -> list[PageIndex]:
    return [page.index for page in view.pages if page.granularity == "line"]


def whole(view: View) -> list[PageIndex]:
    return [page.index for page in view.pages if page.granularity == "whole"]


def folds(ctx: Context) -> list[int]:
    return [entry.seq for entry in ctx.history(operation="fold")]


def below(ctx: Context, index: PageIndex) -> list[PageIndex]:
    """Return the leaves under a page, level by level. Check that no folder of a fold has more than sixteen children."""
    page = ctx.pages.get_page(index)
    if not isinstance(page, ContentsPage):
        return [index]
    children = [child.index for child in ctx.pages.children(index)]
    assert 0 < len(children) <= 16
    return [leaf for child in children for leaf in below(ctx, child)]


@pytest.mark.parametrize("seed", range(6))
def test_a_fold_converges_and_repeats_itself(seed: int) -> None:
    ctx = grown(seed)
    view = ctx.render()
    assert view.fold is not None
    assert view.tokens <= 0.55 * 1_500  # one fold brings it far below the budget
    again = ctx.render()
    assert again.fold is None
    assert again.openai() == view.openai()
    assert len(folds(ctx)) == 1
    other = grown(seed)
    assert other.render().openai() == view.openai()
    assert ctx.check() == []


@pytest.mark.parametrize("seed", range(4))
def test_folding_never_makes_a_view_larger(seed: int) -> None:
    chance = random.Random(seed)
    ctx = quire.open("memory:", budget=1_000)
    for turn in range(50):
        talk_on(ctx, chance, turn, most=chance.choice((1, 3, 40)))
        before = ctx.render(max_tokens=10**6).tokens
        view = ctx.render()
        assert view.tokens <= before
        assert view.tokens <= 1_000
        assert (view.fold is not None) <= (before > 1_000)  # only when it is forced


def test_what_cannot_be_saved_is_not_folded() -> None:
    ctx = quire.open("memory:", budget=5_000, compression=CompressionConfig(threshold=0, target_tokens=0))
    for word in ("a", "b", "c"):
        ctx.user(word)
        ctx.render()
    seq = ctx.seq
    ctx.render()
    assert ctx.seq == seq
    assert folds(ctx) == []


@pytest.mark.parametrize("seed", range(4))
def test_an_undone_fold_gives_back_the_same_bytes_and_stays_undone(seed: int) -> None:
    ctx = grown(seed, turns=12, budget=100_000)
    before = ctx.render().openai()
    ctx.budget = ctx.render().tokens - 100
    folded = ctx.render()
    assert folded.fold is not None
    ctx.undo(folds(ctx)[-1])
    ctx.budget = 100_000
    assert ctx.render().openai() == before
    count = len(folds(ctx))
    assert ctx.render().openai() == before
    assert len(folds(ctx)) == count


def test_an_undone_fold_is_not_made_again_until_the_budget_forces_it() -> None:
    ctx = grown(1, turns=10, budget=100_000, threshold=500)
    assert ctx.render().fold is not None
    ctx.undo(folds(ctx)[-1])
    held = ctx.render()
    assert held.fold is None
    assert held.tokens > 500
    ctx.user("One more.")
    assert ctx.render().fold is None
    ctx.budget = held.tokens - 150
    assert ctx.render().fold is not None
    assert ctx.render().tokens <= ctx.budget


def test_the_floor_is_met_only_when_what_must_be_shown_exceeds_the_budget() -> None:
    ctx = quire.open("memory:", budget=400)
    ctx.system("Careful. " * 20)
    for turn in range(10):
        ctx.user(f"question {turn} " + "word " * 300)
        assert ctx.render().tokens <= 400
    ctx.pages.update_segment("sys", name="System")
    ctx.system("Careful. " * 500)
    with pytest.raises(IrreducibleFloor, match="sys-1"):
        ctx.render()
    ctx.budget = 2_000
    assert ctx.render().tokens <= 2_000


@pytest.mark.parametrize("seed", range(3))
def test_every_folded_exchange_is_reached_level_by_level(seed: int) -> None:
    ctx = grown(seed, turns=150)
    ctx.render()
    for turn in range(150, 200):
        talk_on(ctx, random.Random(seed), turn)
        ctx.render()
    view = ctx.render()
    reached = [leaf for index in lines(view) for leaf in below(ctx, index)] + whole(view)
    state = ctx.pages._engine.current()
    exchanges = [state.index(page.key) for page in state.segment_pages() if page.header.numbers]
    assert set(exchanges) <= set(reached)
    assert len(reached) == len(set(reached))
    index = lines(view)[0]
    ctx.pages.expand(index)
    assert index not in lines(ctx.render(max_tokens=10**6))


@pytest.mark.parametrize("budget", [600, 1_500, 8_000])
def test_folded_lines_take_at_most_a_fifth_of_the_budget(budget: int) -> None:
    chance = random.Random(budget)
    ctx = quire.open("memory:", budget=budget)
    for turn in range(120):
        talk_on(ctx, chance, turn)
        assert ctx.render().by_kind().get("folded", 0) <= budget / 5


@pytest.mark.broad
def test_a_hundred_thousand_exchanges_show_at_most_fifty_lines(request: pytest.FixtureRequest) -> None:
    """In the usual run a twelfth of them: the number of lines grows only with the number of digits."""
    wanted = 100_000 if request.config.getoption("--long") else 8_000
    ctx = quire.open("memory:", budget=8_000, counter=EstimateCounter())
    most = 0
    for start in range(0, wanted, 1_000):
        ctx.import_messages({"role": "user", "content": f"say {n}"} for n in range(start, start + 1_000))
        most = max(most, len(lines(ctx.render())))
    view = ctx.render()
    assert 0 < most <= 50
    assert sum(len(below(ctx, index)) for index in lines(view)) + len(whole(view)) == wanted


def test_a_single_endless_turn_is_folded_inside() -> None:
    ctx = quire.open("memory:", budget=1_500)
    asked = ctx.user("Fix the bug in /src/app.py.")
    for step in range(120):
        ctx.assistant(f"Step {step}.", tool_calls=[ToolCall(f"c{step}", "run", f'{{"cmd": "test {step}"}}')])
        ctx.tool_result(f"c{step}", f"line {step} " * 20)
        view = ctx.render()
        assert view.tokens <= 1_500
        assert asked in [message.index for message in view.messages]
        assert view.messages[-1].tool_call_id == f"c{step}"
    assert len(lines(view)) < 30
    assert sum(len(below(ctx, index)) for index in lines(view)) > 100


def test_folds_split_at_pinned_pages() -> None:
    ctx = quire.open("memory:", budget=800)
    for turn in range(8):
        ctx.user(f"question {turn} " + "word " * 30)
    ctx.pages.pin("usr-4")
    for turn in range(8, 30):
        ctx.user(f"question {turn} " + "word " * 30)
    view = ctx.render()
    shown = [page.index for page in view.pages if page.index.startswith("usr-")]
    place = shown.index("usr-4")
    assert "usr-4" in whole(view)
    before = [leaf for index in shown[:place] for leaf in below(ctx, index)]
    assert before == ["usr-1", "usr-2", "usr-3"]
    assert all(int(leaf[4:]) > 4 for index in shown[place + 1 :] for leaf in below(ctx, index))


def test_an_exchange_that_waits_for_results_is_not_folded() -> None:
    ctx = quire.open("memory:", budget=700)
    for turn in range(6):
        ctx.user(f"question {turn} " + "word " * 30)
    ctx.assistant("word " * 200, tool_calls=[ToolCall("c", "look")])
    view = ctx.render()
    assert view.tokens <= 700
    assert whole(view)[-1] == "usr-7"
    assert view.messages[-1].content == "[no result]"


def test_a_fold_stops_at_an_open_batch() -> None:
    ctx = quire.open("memory:", budget=1_000)
    for turn in range(8):
        ctx.user(f"question {turn} " + "word " * 60)
    ctx.conversation.batch_start()
    for turn in range(8, 14):
        ctx.user(f"question {turn} " + "word " * 60)
    view = ctx.render()
    assert view.fold is not None
    assert whole(view) == [f"usr-{n}" for n in range(9, 15)]
    for turn in range(14, 40):  # the budget is kept, but no chapter crosses the boundary
        ctx.user(f"question {turn} " + "word " * 60)
        assert ctx.render().tokens <= 1_000
    state = ctx.pages._engine.current()
    for page in state.segment_pages():
        if page.header.folder and page.header.level == 1:
            numbers = [child.header.numbers[0] for child in state.members(page.key)]
            assert max(numbers) < 8 or min(numbers) >= 8


def test_the_last_turns_stay_as_many_as_asked_for() -> None:
    for keep in (1, 2):
        ctx = quire.open("memory:", budget=2_000, compression=CompressionConfig(keep_turns=keep, target_tokens=600))
        for turn in range(30):
            ctx.user(f"question {turn} " + "word " * 20)
            ctx.assistant("answer " + "word " * 20)
        kept = whole(ctx.render())
        assert kept[-2 * keep :] == [f"usr-{n}" for n in range(61 - 2 * keep, 61)]


def test_a_sliding_window_folds_whatever_is_older_however_long() -> None:
    ctx = quire.open("memory:", budget=2_000, compression=CompressionConfig(sliding_window=2))
    for turn in range(400):
        ctx.user(f"question {turn} " + "word " * 20)
        ctx.assistant("answer " + "word " * 20)
    assert whole(ctx.render()) == [f"usr-{n}" for n in range(797, 801)]


def test_a_line_begins_with_a_title_and_not_with_a_greeting() -> None:
    ctx = quire.open("memory:", budget=1_500)
    english = "Hi! I would like to change the booking of my family to another week in the summer of next year, thanks"
    chinese = "你好，我想把全家人的机票从上海改到北京再转机去成都然后住三个晚上再回上海"
    for turn in range(30):
        ctx.user(chinese if turn % 2 else english)
        ctx.assistant("Very well. " + "I see to it. " * 30)
    ctx.render()
    state = ctx.pages._engine.current()
    names = {page.header.name for page in state.segment_pages() if page.header.line_tokens and page.header.level <= 1}
    assert names == {
        "Change the booking of my family to another week in the summer…",
        "把全家人的机票从上海改到北京再转机去成都然后住三个晚上再回上海",
    }


@pytest.mark.parametrize("budget", [300, 600, 1_500])
def test_however_little_room_there_is_everything_lies_a_few_levels_deep(budget: int) -> None:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("Prompt.")
    for turn in range(120):
        ctx.user(f"question {turn} " + "word " * 20)
        ctx.assistant(f"answer {turn} " + "词语 " * 10)
        ctx.render()
    folders = [page for page in ctx.pages.list_pages("usr") if isinstance(page, quire.ContentsPage)]
    assert max(page.child_count for page in folders if page.index != "usr-0") <= 16
    leaves = [page.index for page in ctx.pages.list_pages("usr") if isinstance(page, quire.DetailPage)]
    assert len(leaves) == 240
    assert max(len(ctx.pages.ancestors(leaf)) for leaf in leaves) <= 7
    assert ctx.check() == []


def test_a_note_shorter_than_its_line_is_not_hidden() -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.user("Hello")
    for number in range(30):
        ctx.pages.create_detail_page(f"note {number}", "word " * 300, "yes", "mem-0")
    for _ in range(9):
        ctx.user("And this? " * 90)
    view = ctx.render()
    assert view.tokens <= ctx.budget
    assert {shown.granularity for shown in view.pages if shown.index.startswith("mem")} == {"whole"}


def test_an_open_folder_shorter_than_its_line_is_not_hidden() -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.user("Keep this.")
    ctx.pages.pin("usr-1")
    folder = ctx.pages.create_contents_page("Folder", "word " * 390, "usr-0")
    ctx.pages.create_detail_page("Note", "", "Short.", folder)
    ctx.user("Keep that.")
    ctx.pages.pin("usr-4")
    for turn in range(12):
        ctx.user(f"Question {turn} " + "alpha beta " * 60)
        ctx.assistant("Fine.")
        ctx.render()
    assert folds(ctx)
    assert ctx.why(folder).shown != "line"


def test_facts_in_an_open_folder_are_gated_with_what_is_folded_beside_it() -> None:
    ctx = quire.open("memory:", budget=1_500)
    found: list[FoldResult] = []
    ctx.on_fold(found.append)
    for number in range(3):
        ctx.user(f"Order R-77{number}00")
    ctx.pages.create_contents_page("Folder", "", "usr-0", ["usr-1", "usr-2", "usr-3"])
    ctx.assistant("Noted.")
    for _ in range(6):
        ctx.user("Question " + "alpha beta " * 120)
        ctx.render()
    assert sum(folded.account.kept + folded.account.reachable for folded in found) >= 3


def test_a_capacity_is_kept_once_and_not_in_what_is_private() -> None:
    ctx = quire.open("memory:", budget=20_000)
    for name, permission in (("cap", quire.Permission.READ_WRITE), ("own", quire.Permission.PRIVATE)):
        ctx.pages.add_segment(quire.Segment(id=name, name=name, permission=permission, max_capacity=200))
        for number in range(40):
            ctx.pages.create_detail_page(f"note {number}", "", "some words " * 10, f"{name}-0")
    ctx.user("Hello")
    view = ctx.render()
    whole = [page.index for page in view.pages if page.index.startswith("cap") and page.granularity == "whole"]
    assert whole == ["cap-39", "cap-40"]
    assert sum(part.tokens for part in view.parts if part.pages and part.pages[-1].index == "cap-40") <= 100
    assert {ctx.pages.get_page(f"own-{number}").visibility for number in range(1, 41)} == {quire.Visibility.EXPANDED}
    assert not ctx._views._renderer._update_cache().is_over_capacity  # otherwise every view would try again


@pytest.mark.parametrize("messages", [300, 1_500])
def test_a_long_import_is_folded_down_to_about_the_target_and_not_further(messages: int) -> None:
    ctx = quire.open("memory:", budget=8_000)
    said = (
        {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "the pump runs well, " * 7}
        for n in range(messages)
    )
    ctx.import_messages(said)
    view = ctx.render()
    assert 0.3 * 8_000 <= view.tokens <= 0.4 * 8_000
    assert view.by_kind()["exchange"] >= 0.12 * 8_000
