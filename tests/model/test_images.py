"""Sizes of images from their first bytes, and their tokens by the rules of the providers."""

import random

import pytest

from quire.model.media import UNKNOWN_IMAGE, Size, count_image_tokens, read_image_size
from tests.pictures import gif, jpeg, png, webp

FILES = {
    "png": png(640, 480),
    "gif": gif(640, 480),
    "jpeg": jpeg(640, 480),
    "jpeg, progressive": jpeg(640, 480, frame=0xC2),
    "jpeg with a long profile": jpeg(640, 480, before=300_000),
    "webp, lossy": webp("VP8", 640, 480),
    "webp, lossless": webp("VP8L", 640, 480),
    "webp, extended": webp("VP8X", 640, 480),
}


@pytest.mark.parametrize("name", FILES)
def test_the_size_stands_in_the_first_bytes(name: str) -> None:
    assert read_image_size(FILES[name]) == Size(640, 480)
    assert read_image_size(FILES[name] + b"pixels") == Size(640, 480)


@pytest.mark.parametrize("name", FILES)
def test_an_image_cut_off_anywhere_is_of_unknown_size_and_no_error(name: str) -> None:
    whole = FILES[name]
    for length in range(0, len(whole), max(1, len(whole) // 100)):
        assert read_image_size(whole[:length]) in (None, Size(640, 480))
    assert read_image_size(whole[:9]) is None


def test_garbage_is_of_unknown_size_and_no_error() -> None:
    chance = random.Random(5)
    for name, whole in FILES.items():
        for _ in range(200):
            data = bytearray(whole[:120])
            for _ in range(8):
                data[chance.randrange(len(data))] = chance.randrange(256)
            found = read_image_size(bytes(data))
            assert found is None or min(found) > 0, name
    assert read_image_size(chance.randbytes(500)) is None
    assert read_image_size(png(0, 480)) is None
    assert read_image_size(b"<svg width='1' height='1'/>") is None


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((1, 1), 255),  # a tile
        ((512, 512), 350),  # by area, above one tile
        ((1024, 1024), 1_399),  # by area; OpenAI's own example gives 765
        ((2048, 4096), 1_600),  # by area, at its maximum; OpenAI's own example gives 1,105
        ((2048, 100), 765),  # four tiles in a row
        ((200, 200), 255),
        ((100_000, 1), 765),
    ],
)
def test_the_larger_of_the_two_rules_counts(size: tuple[int, int], tokens: int) -> None:
    assert count_image_tokens(Size(*size)) == tokens
    assert count_image_tokens(Size(*reversed(size))) == tokens


def test_low_detail_is_cheap_only_where_both_rules_say_so() -> None:
    assert count_image_tokens(Size(100, 100), low=True) == 85
    assert count_image_tokens(Size(1024, 1024), low=True) == 1_399


def test_no_size_counts_more_than_the_unknown_one() -> None:
    chance = random.Random(1)
    sizes = [Size(chance.randrange(1, 1 << chance.randrange(1, 20)), chance.randrange(1, 9_000)) for _ in range(3_000)]
    assert max(map(count_image_tokens, sizes)) == UNKNOWN_IMAGE == count_image_tokens(None)
