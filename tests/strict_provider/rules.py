"""The rules of all APIs, and the check of a request against them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.strict_provider import anthropic_rules, chat_rules, responses_rules
from tests.strict_provider.requests import Api, Body, Problem, Request, State

Check = Callable[[Request, State], Problem | None]


class Rule(NamedTuple):
    """A rule: its name, the function that checks it, and the document that it comes from."""

    name: str
    check: Check
    source: str


def _list_rules(sources: Sequence[tuple[Check, str]]) -> list[Rule]:
    return [Rule(check.__name__.replace("_", " "), check, source) for check, source in sources]


RULES: Mapping[Api, list[Rule]] = {
    "anthropic": _list_rules(anthropic_rules.SOURCES),
    "chat": _list_rules(chat_rules.SOURCES),
    "responses": _list_rules(responses_rules.SOURCES),
}


def check_request(
    api: Api, body: Body, state: State, *, betas: Iterable[str] = (), counts: bool = False
) -> Problem | None:
    """Return the first problem of a request; None if the provider accepts it. `counts`: it is for count_tokens."""
    request = Request(api, body, frozenset(betas), counts)
    for rule in RULES[api]:
        problem = rule.check(request, state)
        if problem is not None:
            problem = problem._replace(rule=rule.name, source=rule.source)
            if rule.name not in state.tolerated:
                return problem
            state.found.append(problem)
    return None
