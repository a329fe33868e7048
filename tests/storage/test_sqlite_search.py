"""The check of SQLite's search index finds no damage in a correct index after random writes."""

import random
from pathlib import Path

import pytest

from quire import SQLiteStorage
from quire.search.tokenizer import tokenize
from quire.storage.base import Commit
from quire.storage.search_protocol import Document, IndexState

IDENTITY = b"i"


def word(chance: random.Random) -> str:
    match chance.randrange(4):
        case 0:
            return f"w{int(chance.paretovariate(0.6)) % 100_000}"
        case 1:
            ranges = ((0x20, 0x2FFF), (0xA0, 0x24F), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x10000, 0x1FFFF))
            return "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randint(1, 5)))
        case 2:
            return f"getUserName_{chance.randrange(9)}"
        case _:
            return "the"


def new_document(chance: random.Random) -> Document:
    body, parts = tokenize(" ".join(word(chance) for _ in range(chance.choice((0, 3, 30, 300)))))
    return Document(chance.randint(1, chance.choice((400, 3_000))), body, tokenize(word(chance))[0], (), parts)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_a_sound_index_is_like_its_documents(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    storage = SQLiteStorage(tmp_path / "store.db")
    held: dict[str, dict[int, Document]] = {"a": {}, "b": {}, "c": {}}
    for name in held:
        storage.commit(name, Commit(0, 1, b"head", []))
    for step in range(1, 31 if seed == 1 else 301):
        name = chance.choice(sorted(held))
        index, documents = storage.search(name), held[name]
        new = {
            document.key: document for document in (new_document(chance) for _ in range(chance.choice((1, 1, 9, 50))))
        }
        gone = set(chance.sample(sorted(documents), min(len(documents), chance.choice((0, 1, 20))))) - set(new)
        assert index.update(index.state(), IndexState(step, IDENTITY), new.values(), gone)
        held[name] = {key: document for key, document in documents.items() if key not in gone} | new
        if step % 30 == 0:
            assert storage._indexes.find_damage() == ""
            check = storage.search_check()
            for examined in chance.sample(sorted(held), chance.randint(1, 3)):
                stands = storage.search(examined).state()
                assert stands is not None
                assert check.matches(examined, stands, held[examined].values())
            assert check.find_damage() == ""
    storage.close()
