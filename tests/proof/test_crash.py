"""The crash topic: its control is found, and its models agree with quire when nothing is killed."""

from pathlib import Path

import quire
from proof import crash
from proof.plain_model import Event, PlainModel
from proof.topic import Options
from proof.twin import model_differences
from proof.world import FixedClock, World, look
from quire import MemoryStorage


def test_the_controls_are_found(tmp_path: Path) -> None:
    controls = list(crash.control(Options(folder=tmp_path, seed=1, backends=("sqlite",))))
    assert [control.found for control in controls] == [True, True]


def test_the_plain_model_agrees_with_quire() -> None:
    world, model = World(MemoryStorage(), MemoryStorage()), PlainModel()
    with FixedClock() as clock:
        for number in range(60):
            clock.set(number)
            events: list[Event] = []
            world.run(number, 7, events.append)
            for event in events:
                model.apply(event)
            if number % 6 == 5:
                assert model_differences(look(world), model) == []
    model.apply(("say", "book", 10_000, "a message that quire does not have"))
    (place,) = model_differences(look(world), model)
    assert place == "main 'book': not expected [], lost ['a message that quire does not ']"


def test_the_plain_model_keeps_a_pinned_page_as_a_rollback_does() -> None:
    ctx = quire.open("memory:")
    model = PlainModel()
    model.apply(("create", "book", ctx.seq))
    start = ctx.seq
    index = ctx.pages.create_detail_page("page", "", "text", "mem-0")
    model.apply(("page", "book", ctx.seq, index, "text"))
    ctx.pages.pin(index)
    model.apply(("pin", "book", ctx.seq, index))
    ctx.rollback(start)
    model.apply(("restore", "book", ctx.seq, start))
    assert ctx.pages.detail(index) == "text"
    assert model.shown()["main"]["book"] == ([], {index: "pinned: text"})
