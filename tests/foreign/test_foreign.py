"""The frameworks' own suites, with quire's adapters in the place of their classes: only the listed tests fail."""

from pathlib import Path

import pytest

from tests.foreign.run import SUITES, Suite, compare, expected_failures, get_source, run_suite

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.package)
def test_only_the_listed_tests_of_a_suite_fail(suite: Suite, tmp_path: Path) -> None:
    found = run_suite(suite, get_source(suite, tmp_path))
    assert compare(suite, found, expected_failures(suite)) == []
    assert "passed" in found.values()
