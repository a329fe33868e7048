"""The server's own description of its API is true: no request made from it breaks the server, with `--long`.

A failure prints the blob with which `@reproduce_failure` makes the request again.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.surfaces.http_service import AUTHORIZED, Service, serving

WAYS = ("right", "wrong")
KNOWN = st.fixed_dictionaries(
    {
        "c": st.sampled_from(["book", "book", "book", "nobody", "测试", "a/b"]),
        "p": st.sampled_from(["mem-2", "mem-2", "usr-1", "usr-0", "sys-1", "mem-99", "x"]),
        "w": st.sampled_from(["list", "none"]),
        "action": st.sampled_from(["add", "close"]),
    }
)
"""Values of the parameters in a path: most of them exist."""


def ask_for(operation: Any, way: str, examples: int) -> None:
    """Make right or wrong requests for an operation of the description, and check the answers."""
    if way == "wrong" and not operation.path_parameters and not operation.query:
        return  # without parameters nothing can be wrong
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import response_schema_conformance

    mode = GenerationMode.POSITIVE if way == "right" else GenerationMode.NEGATIVE

    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), known=KNOWN, exists=st.booleans())
    def ask(case: Any, known: dict[str, str], exists: bool) -> None:
        if exists or way == "right":
            case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        response = case.call(headers=AUTHORIZED)
        case.validate_response(response, checks=[not_a_server_error])
        if response.status_code >= 400:
            assert response.json()["error"]["code"], response.content
        elif way == "right":
            case.validate_response(response, checks=[response_schema_conformance])

    ask()


def operations_of(service: Service) -> list[Any]:
    """Return the operations that a server describes, without its streams, which have no end."""
    import schemathesis

    address = f"{service.client.base_url}openapi.json"
    schema: Any = schemathesis.openapi.from_url(address, headers=AUTHORIZED)
    return [found.ok() for found in schema.get_all_operations() if "event" not in found.ok().path]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_no_request_that_is_described_breaks_the_server(way: str) -> None:
    with serving(budget=2_000) as service:
        service.book("book")
        operations = operations_of(service)
        assert len(operations) > 40
        for operation in operations:
            ask_for(operation, way, 20)
