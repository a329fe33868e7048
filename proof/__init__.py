"""Long tests of quire's promises: crashes, power loss, storage faults, load, and more. See `python -m proof --help`."""
