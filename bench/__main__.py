"""Compare two versions of quire, or measure the topics of the documentation.

.venv/bin/python -m bench compare OLD [NEW]    two git references side by side; see --help
.venv/bin/python -m bench [TOPIC …]            figures of this checkout; see bench/topics.py
"""

import sys


def main() -> int:
    """Run the command that the arguments name. What the other one needs is not imported."""
    if sys.argv[1:2] == ["compare"]:
        from bench.compare.command import main as compare

        return compare(sys.argv[2:])
    from bench.topics import main as measure

    return measure()


if __name__ == "__main__":
    sys.exit(main())
