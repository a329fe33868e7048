"""Storages: records of many contexts, and one atomic commit that two writers cannot both make."""
