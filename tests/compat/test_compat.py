"""Stores that 0.1.0 wrote: later code reads them, gives the same answers, and can write to them.

The stores and the answers are in `data/`. A test that fails here shows a change that breaks the stores of users.
`make_data` describes how the data was written.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import quire
from tests.compat.answers import FORMS, VIEWS, answers_of, text_of
from tests.compat.make_store import BUDGETS, FORK, IMPORTED, OPEN, SUPPORT, make, open_context
from tests.compat.places import DATA, loaded, opened
from tests.marks import broad

DERIVED = ("views", "with cache marks", "more views", "stats", "why", "find", "agent finds")
"""Answers that are derived from the records. Later versions draw views and rank pages in other ways."""
BUILT = ("messages", "shown messages", "marks", "batches", "pending calls", "checkpoints")
"""Answers that the same operations must give in every version, whatever the renderer folds."""
UNREACHED = ("unreached_records", "note")
"""The doctor's note on a fork at a checkpoint: it has bodies that only the journal of its origin refers to."""


@cache
def expected() -> Mapping[str, dict[str, Any]]:
    """Return the answers of 0.1.0 on each context, with what was changed on purpose since."""
    found: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
    found[OPEN]["stats"]["window_items"] = 1  # 0.1.0 counted closed windows too
    return found


@pytest.fixture(params=["sqlite", "file", *broad("postgres", "s3")])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[quire.Storage]:
    """Return a fresh copy of the store that 0.1.0 wrote, on every durable backend."""
    backend: str = request.param
    with opened(backend, loaded(backend, tmp_path)) as found:
        yield found


def _symptoms(storage: quire.Storage) -> set[tuple[str, str, str]]:
    return {(each.context, each.code, each.severity) for each in quire.doctor(storage).symptoms}


def test_the_store_is_healthy(storage: quire.Storage) -> None:
    assert quire.doctor(storage).contexts == len(BUDGETS)
    assert _symptoms(storage) == {(FORK, *UNREACHED)}
    assert all(symptom.repaired for symptom in quire.doctor(storage, repair=True).symptoms)
    assert _symptoms(storage) == set()


def _without_batches(document: str) -> str:
    """Return a document as the old code wrote it: it left out the open batches."""
    head, found, _ = document.partition(',\n "batches": [')
    return head + "\n}" if found else document


def test_all_answers_are_those_of_the_old_code(storage: quire.Storage) -> None:
    answers = json.loads(json.dumps(answers_of(storage), ensure_ascii=False))
    assert sorted(answers) == sorted(BUDGETS)
    for found in answers.values():
        found["marshal"] = _without_batches(found["marshal"])
    for name, kept in expected().items():
        assert list(answers[name]) == list(kept)
        for key, value in kept.items():
            if key not in DERIVED:
                assert answers[name][key] == value, f"{name}: {key}"
                assert text_of(answers[name][key]) == text_of(value), f"{name}: {key}"  # the order in a dict, too
    assert _symptoms(storage) == {(FORK, *UNREACHED)}


def test_the_views_of_the_store_are_legal_and_fit(storage: quire.Storage) -> None:
    with quire.Library(storage) as library:
        for name in BUDGETS:
            with open_context(library, name) as ctx:
                for options in (*FORMS.values(), *VIEWS.values()):
                    view = ctx.render(preview=True, **options)
                    assert view.tokens <= options.get("max_tokens", ctx.budget), (name, options)
                    assert quire.check_legal(view.openai(), "openai") == [], (name, options)
                    assert quire.check_legal(view.responses(), "responses") == [], (name, options)
                    assert quire.check_legal(view.anthropic(), "anthropic") == [], (name, options)


def test_the_first_operation_on_the_store_can_be_a_search(storage: quire.Storage) -> None:
    with quire.Library(storage) as library, open_context(library, SUPPORT) as ctx:
        assert [hit.index for hit in ctx.find("4111")] == ["vault-1"]
        assert ctx.agent.find("4111") == []


def test_the_store_can_be_written_to(storage: quire.Storage) -> None:
    with quire.Library(storage) as library:
        for name in BUDGETS:
            with open_context(library, name) as ctx:
                ctx.close_calls()
                seq = ctx.seq
                index = ctx.user("A new message about a lighthouse 灯塔.")
                assert ctx.seq == seq + 1
                assert index == len(expected()[name]["messages"])
                assert "灯塔" in str(ctx.render().openai())
                assert [hit.index for hit in ctx.find("lighthouse")][:1] == [ctx.conversation.page_of(index)]
                assert ctx.check() == []
        _undo_a_fold(library)
        _go_on_with_what_was_open(library)
        _fork(library)
    assert _symptoms(storage) == {("third try", *UNREACHED)}
    assert quire.doctor(storage).healthy


def _undo_a_fold(library: quire.Library) -> None:
    """Undo an entry that the old code wrote."""
    with open_context(library, IMPORTED) as ctx:
        folded = next(entry for entry in ctx.history() if entry.operation == "fold")
        chapters = [page for page in folded.pages if isinstance(ctx.pages.get_page(page), quire.ContentsPage)]
        assert chapters
        ctx.undo(folded)
        assert not {page.index for page in ctx.pages.list_pages()} & set(chapters) - {"usr-0"}
        assert ctx.check() == []
        assert ctx.render().tokens <= ctx.budget
        assert ctx.check() == []


def _go_on_with_what_was_open(library: quire.Library) -> None:
    """Continue with the batch and the window that the old code left open."""
    with open_context(library, OPEN) as ctx:
        shown = expected()[OPEN]["batches"]["batch_boundaries"]
        assert ctx.conversation.mark_map().batch_boundaries == shown
        assert ctx.windows.act("shopping_1", "add", thing="milk")
        assert "milk" in str(ctx.render().openai())
        ctx.conversation.batch_end(0)
        assert [message.index for message in ctx.messages()] == list(range(shown[1]))
        assert ctx.check() == []


def _fork(library: quire.Library) -> None:
    """Fork the context that the old code wrote, at one of its checkpoints, and remove the fork of the old code."""
    with open_context(library, SUPPORT) as ctx:
        with ctx.fork("third try", "before the fork") as fork:
            fork.assistant("This is another way.")
            assert fork.check() == []
            assert [hit.index for hit in fork.find("靠窗")][:1] == ["mem-2"]
        library.delete(FORK)
        assert ctx.check() == []
        ctx.rollback("after the edit")
        assert ctx.check() == []
    assert sorted(library.list()) == sorted({*BUDGETS, "third try"} - {FORK})


def test_a_context_that_the_old_code_exported_comes_back() -> None:
    memory = quire.MemoryStorage()
    with quire.Library(memory) as library:
        assert library.import_(DATA / "export.quire") == SUPPORT
    answers = json.loads(json.dumps(answers_of(memory), ensure_ascii=False))
    kept = expected()[SUPPORT]
    assert {key: answers[SUPPORT][key] for key in kept if key not in DERIVED} == {
        key: value for key, value in kept.items() if key not in DERIVED
    }


@pytest.mark.parametrize("name", BUDGETS)
def test_the_json_form_is_read(name: str) -> None:
    kept = expected()[name]["marshal"]
    with quire.open("memory:") as ctx:
        ctx.pages.unmarshal(kept)
        assert ctx.check() == []
        assert json.loads(ctx.pages.marshal())["pages"] == json.loads(kept)["pages"]


def test_the_same_operations_make_the_same_conversations_today() -> None:
    memory = quire.MemoryStorage()
    make(memory)
    answers = json.loads(json.dumps(answers_of(memory), ensure_ascii=False))
    for name, kept in expected().items():
        for key in BUILT:
            assert answers[name][key] == kept[key], f"{name}: {key}"
