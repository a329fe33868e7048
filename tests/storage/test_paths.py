"""File names: safe on every file system, and different for different texts."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quire.storage.paths import decode_file_name, file_name
from quire.testing.contexts import ACCEPTED

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
NEAR = st.text(st.sampled_from("aA%2fF.-_/ é"), max_size=6)
SAFE = set(string.ascii_lowercase + string.digits + "_-%")
DEVICES = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}


@given(ANY_TEXT | st.sampled_from(ACCEPTED) | st.sampled_from(sorted(DEVICES)))
@example("")
@example(".")
@example("..")
@example("/")
@example("\x00")
@example("CON")
def test_a_file_name_is_safe_on_every_file_system(name: str) -> None:
    encoded = file_name(name)
    assert set(encoded) <= SAFE
    assert 0 < len(encoded) <= 120
    assert encoded not in DEVICES
    assert (Path("folder") / encoded).parent == Path("folder")


@given(ANY_TEXT | NEAR | st.sampled_from(ACCEPTED) | st.sampled_from(sorted(DEVICES)))
@example("")
@example("%con")
def test_a_file_name_that_was_not_cut_leads_back(name: str) -> None:
    encoded = file_name(name)
    assert decode_file_name(encoded) == (None if "%-" in encoded else name)


@given(st.text(st.sampled_from("a%2fF-c3on"), max_size=8))
def test_no_other_file_name_leads_anywhere(file: str) -> None:
    name = decode_file_name(file)
    assert name is None or file_name(name) == file


@given(ANY_TEXT | NEAR, ANY_TEXT | NEAR)
@example("con", "%con")
@example("", "%")
@example("a" * 121, "a" * 122)
@example("A", "%41")
@example("ﬁ", "fi")
def test_two_texts_never_share_a_file_name(one: str, other: str) -> None:
    assert (file_name(one).casefold() == file_name(other).casefold()) is (one == other)


@given(st.text(st.sampled_from("aAbB"), min_size=119, max_size=125), st.integers(0, 118))
def test_long_texts_that_differ_anywhere_stay_apart(text: str, at: int) -> None:
    other = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
    assert file_name(text) != file_name(other)
    assert file_name(text) != file_name(text.swapcase())


@given(st.text(st.sampled_from(string.ascii_lowercase + string.digits + "_-"), min_size=1, max_size=80))
def test_a_plain_text_is_its_own_file_name(name: str) -> None:
    assert file_name(name) == (f"%{name}" if name in DEVICES else name)


@pytest.mark.parametrize("name", ["..", "../../etc", "/etc/passwd", "a/../../b", ".", "~"])
def test_no_name_leaves_its_folder(name: str, tmp_path: Path) -> None:
    inside = os.path.realpath(tmp_path / file_name(name))
    assert os.path.dirname(inside) == os.path.realpath(tmp_path)
