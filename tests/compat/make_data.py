"""Write `data/` again: the store of `make_store` on every backend, and the answers of quire on it.

Run it as `python -m tests.compat.make_data` with the code of the version that must stay compatible. Do not run it to
make a failing test pass: then the stores of users fail too.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import quire
from tests.compat.answers import answers_of, text_of
from tests.compat.make_store import SUPPORT, make
from tests.compat.places import BACKENDS, DATA, fresh, keep, loaded, opened, schema_for_keeping

EXPECTED = DATA / "expected.json"
EXPORTED = DATA / "export.quire"


def main() -> None:
    DATA.mkdir(exist_ok=True)
    texts = set()
    for backend in BACKENDS:
        with TemporaryDirectory() as folder:
            place = schema_for_keeping() if backend == "postgres" else fresh(backend, Path(folder))
            with opened(backend, place) as storage:
                make(storage)
            keep(backend, place)
        with TemporaryDirectory() as folder, opened(backend, loaded(backend, Path(folder))) as storage:
            if backend == "sqlite":
                with quire.Library(storage) as library:
                    library.export(SUPPORT, EXPORTED, overwrite=True)
            text = text_of(answers_of(storage))
            (DATA / f"expected-{backend}.json").write_text(text + "\n", encoding="utf-8")
        texts.add(text)
    if len(texts) != 1:
        raise SystemExit("The backends do not answer alike: compare the files expected-*.json.")
    for backend in BACKENDS:
        (DATA / f"expected-{backend}.json").replace(EXPECTED)


if __name__ == "__main__":
    main()
