"""The seed of the random choices of a run: always the same one, or with --long a new one. `QUIRE_SEED` repeats a run.

`tests/conftest.py` chooses it, and prints it if a test fails.
"""

import os

SEED = int(os.environ.get("QUIRE_SEED", "7"))
