"""One comparison of answers with the rows of the tables."""

from typing import Any


def assert_has(real: Any, expected: Any) -> None:
    """Check that a value has what is expected: a type, the keys of a mapping, the items of a list up to `...`."""
    if isinstance(expected, type):
        assert isinstance(real, expected)
    elif isinstance(expected, dict):
        assert isinstance(real, dict)
        assert expected.keys() <= real.keys()
        for key, value in expected.items():
            assert_has(real[key], value)
    elif isinstance(expected, list):
        wanted = expected[: expected.index(...)] if ... in expected else expected
        assert isinstance(real, list)
        assert len(real) == len(wanted) or wanted != expected
        for one, value in zip(real, wanted, strict=False):
            assert_has(one, value)
    else:
        assert real == expected
