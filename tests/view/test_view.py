"""The forms and options of a view, and what it reads."""

from functools import wraps
from typing import Any

import pytest

import quire
from quire import CompressionConfig, Context, InvalidValue, MemoryStorage, RenderOptions, ToolCall


def talking() -> Context:
    ctx = quire.open("memory:", budget=100_000)
    ctx.system("You are careful.")
    ctx.user("Hello")
    ctx.assistant("Let me see.", tool_calls=[ToolCall("c", "look")])
    ctx.tool_result("c", "Nothing.")
    return ctx


def test_the_form_for_anthropic_is_a_plain_dict_of_parameters_with_few_cache_marks() -> None:
    view = talking().render()
    request = view.anthropic(cache=True)
    assert type(request) is dict
    assert list(request) == ["system", "messages"]
    assert request["messages"][0]["role"] == "user"
    assert 1 < str(request).count("cache_control") <= 4
    assert quire.check_legal(request, "anthropic") == []
    short = talking().render(include_system_prompt=False)
    assert list(short.anthropic()) == ["messages"]
    assert [message.role for message in short.messages] == ["user", "assistant", "tool"]


BAD_OPTIONS = [
    *({"max_tokens": -1}, {"max_tokens": "many"}, {"reserve": None}, {"preview": 1}, {"windows": "left"}),
    *({"recall": 5}, {"colour": "red"}),
]


@pytest.mark.parametrize("bad", BAD_OPTIONS)
def test_options_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    ctx = talking()
    with pytest.raises(InvalidValue):
        ctx.render(**bad)
    with pytest.raises(InvalidValue):
        ctx.render({"max_tokens": 5})  # type: ignore[arg-type]
    assert ctx.render(RenderOptions(max_tokens=5_000)).budget == 5_000


BAD_CONFIGS = [
    *({"enabled": None}, {"threshold": -1}, {"target_tokens": "x"}, {"keep_turns": 1.5}, {"treshold": 500}),
    *({"threshold": 10, "target_tokens": 20}, {"summariser": "gpt"}),
]


@pytest.mark.parametrize("bad", BAD_CONFIGS)
def test_configurations_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        quire.open("memory:", compression=CompressionConfig(**bad))


# Reads


class Counting(MemoryStorage):
    """Counts the answers of its methods, and what those that iterate yield, whatever they are called."""

    reads = 0

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name.startswith("_") or not callable(found):
            return found

        @wraps(found)
        def counted(*arguments: Any, **options: Any) -> Any:
            type(self).reads += 1
            answer = found(*arguments, **options)
            return self._count(answer) if hasattr(answer, "__next__") else answer

        return counted

    def _count(self, records: Any) -> Any:
        for record in records:
            type(self).reads += 1
            yield record


def test_reads_follow_what_is_shown_and_not_what_there_is() -> None:
    reads = []
    for count in (100, 1_000):
        storage = Counting()
        ctx = quire.open(storage, budget=4_000, counter=quire.EstimateCounter())
        for number in range(count):
            ctx.pages.create_detail_page(f"note {number}", "", f"Text {number} " * 20, "mem-0")
        for number in range(30):
            ctx.user(f"question {number}")
        ctx.render()
        Counting.reads = 0
        for number in range(20):
            ctx.assistant(f"answer {number}")
            ctx.render()
        reads.append(Counting.reads)
    assert reads[1] <= reads[0] + 20 < 600
