"""Embedders that come with quire. An embedder is any callable from a list of texts to as many vectors.

Give it a `name` that changes when its vectors do: vectors with another name are computed again. It is a plain function.
It gets up to 128 texts at once, each of at most 8,000 characters, and is called once for every query.
"""

from pathlib import Path
from typing import Any

from quire.errors import NotInstalled


class WordLlamaEmbedder:
    """Static vectors of 256 numbers from the wordllama package: no network, no GPU, about a thousand pages a second.

    The package is loaded with the first text.
    """

    name = "wordllama-256"

    def __init__(self) -> None:
        self._model: Any = None

    def __call__(self, texts: list[str]) -> Any:
        if self._model is None:
            import wordllama as package

            folder = Path(package.__file__ or "").parent  # the model is in the wheel; without this it is downloaded
            self._model = package.WordLlama.load(cache_dir=folder, disable_download=True)
        return self._model.embed(texts, norm=True)


def wordllama() -> WordLlamaEmbedder:
    """Return the embedder of `quire[embeddings]`. Raise `NotInstalled` if the package is missing."""
    from importlib.util import find_spec

    if find_spec("wordllama") is None:
        raise NotInstalled("wordllama is not installed", "embeddings", name="wordllama")
    return WordLlamaEmbedder()
