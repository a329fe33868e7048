"""Keys of context names: every name has one, keys sort like names, and the name can be read back."""

import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import InvalidValue
from quire.storage.s3.head import check_key, key_of, name_of
from quire.testing.contexts import ACCEPTED

SAFE = set(string.ascii_letters + string.digits + "-_!/")
names = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), max_size=30)


@given(names, names)
def test_keys_sort_as_names_do_and_lead_back(one: str, other: str) -> None:
    assert name_of(key_of(one)) == one
    assert (key_of(one) < key_of(other)) == (one < other)
    assert (key_of(one + other) > key_of(one)) == bool(other)


def test_every_character_has_a_place_of_its_own() -> None:
    points = [*range(0x20, 0x3100), *range(0x3100, 0x110000, 97), *range(0x38F00, 0x39200), *range(0xE0100, 0xE01F0)]
    every = [chr(point) for point in sorted(set(points)) if not 0xD800 <= point < 0xE000]
    keys = [key_of(char) for char in every]
    assert keys == sorted(set(keys))
    assert set("".join(keys)) <= SAFE


def test_hostile_and_long_names_make_plain_keys_that_servers_take() -> None:
    keys = {name: key_of(name) for name in ACCEPTED}
    for name, key in keys.items():
        assert set(key) <= SAFE
        assert len(key) <= 820
        assert all(0 < len(part) <= 250 for part in key.split("/"))
        assert name_of(key) == name
    assert sorted(keys, key=keys.__getitem__) == sorted(ACCEPTED)


def test_long_names_that_begin_alike_are_in_order() -> None:
    random = Random(4)
    found = sorted({"中" * 60 + "".join(random.choices("a中 !", k=random.randrange(5))) for _ in range(200)})
    assert [key_of(name) for name in found] == sorted(key_of(name) for name in found)


@pytest.mark.parametrize("key", ["", "a", "z!", "-z!", "9!", "za!", "zzab!", "a/b!", "A!!", "é!", "_7!"])
def test_what_is_no_key_of_a_name_is_none(key: str) -> None:
    assert name_of(key) in (None, "") or key_of(name_of(key) or "") == key


def test_a_key_too_long_for_s3_is_refused() -> None:
    name = "\U000e0100" * 200
    with pytest.raises(InvalidValue, match=r"1,2.. bytes; .* 1,024"):
        check_key(f"heads/{key_of(name)}", name)
