"""The table of the command line: what each command answers, and which calls are refused.

Words in capitals stand for what a test makes: `STORE` (a store with one context), `SESSION` (a file of a coding agent),
`DIR` (a new folder), `LAST` (the number of the newest journal entry), `PYTHON` (the interpreter), `CLIENT` (a program
that sends one request to the address of a gateway).
"""

from typing import Any, NamedTuple

NAME = "支持-42"
"""The name of the only context of the store."""


class Works(NamedTuple):
    """A call that succeeds, and a part of the JSON that it prints."""

    call: str
    value: Any = None
    """A mapping is one line of JSON, a list has one value for each line; `None` is any output."""
    then: str = ""
    """A call that shows what the first one changed."""
    shows: Any = None
    first: str = ""
    """A call that comes before."""
    slow: bool = False
    """Whether only a long run makes it."""


PAGE = {
    "index": "mem-1",
    "name": "座位",
    "description": "靠窗",
    "kind": "detail",
    "author": "developer",
    "pinned": False,
}
SHOW, TREE = "show STORE mem-1", "tree STORE mem-0"


def pages(*indices: str) -> list[dict[str, str]]:
    """Return the lines of a tree."""
    return [{"index": index} for index in indices]


READING = (
    Works("ls STORE", [{"name": NAME, "messages": 5, "seq": int}]),
    Works("ls STORE --long", [{"name": NAME, "pages": 11, "tokens": int, "bytes": int}]),
    Works("ls STORE -l --prefix other", []),
    Works(
        TREE,
        [
            {"depth": 0, "index": "mem-0", "children": 1},
            {"depth": 1, "index": "mem-2"},
            {"depth": 2, **PAGE},
            {"depth": 0, "lifecycle": "cold"},
        ],
    ),
    Works(
        "tree STORE --depth 0", [{"index": f"{segment}-0", "parent": None} for segment in ("sys", "mem", "usr", "win")]
    ),
    Works("tree STORE usr-0 --limit 1", [{"index": "usr-0", "children": 3}, {"index": "usr-1"}]),
    Works("tree STORE usr-0 --all", pages("usr-0", "usr-1", "usr-2", "usr-3")),
    Works(SHOW, {**PAGE, "detail": "乘客想要靠窗的座位。", "path": ["mem-0", "mem-2"], "lifecycle": "active"}),
    Works("show STORE mem-3 --body", {"detail": "An old note about trains.", "lifecycle": "cold"}),
    Works("find STORE 座位 --limit 1", [{"index": "mem-1", "snippet": str, "score": float}]),
    Works("find STORE Seattle --kind exchange --role user", [{"index": "usr-1", "path": ["usr-0"]}]),
    Works("find STORE Seattle --segment mem", []),
    Works("find STORE trains --lifecycle cold", [{"index": "mem-3", "lifecycle": "cold"}]),
    Works("stats STORE", {"name": NAME, "messages": 5, "stats": {"total_items": 4, "segments": {"win": 0}}}),
    Works("view STORE --budget 2000", {"budget": 2000, "tokens": int, "pages": list}),
    Works("render STORE -b 2k", {"budget": 2000, "messages": list}),
    Works("render STORE --format openai --reserve 100 --recall 0.5 --recall-floor 0", {"messages": list}),
    Works("render STORE -f anthropic --cache --recall auto", {"format": "anthropic", "system": list, "messages": list}),
    Works("render STORE --format responses --budget 2000", {"format": "responses", "tokens": int}),
    Works("why STORE usr-1 --budget 3000", {"index": "usr-1", "shown": "whole", "by": "developer", "tokens": int}),
    Works("history STORE -n 1", [{"seq": int, "actor": "developer", "pages": ["usr-3"]}]),
    Works("history STORE --limit 1 --changes --page mem-2", [{"operation": "create_contents_page", "changes": list}]),
    Works("history STORE --all --operation archive --actor developer", [{"pages": ["mem-3"], "undoes": None}]),
    Works("history STORE --since 2020-01-01 --until 2020-01-02T00:00+08:00", []),
    Works("history STORE --after LAST", []),
    Works("check STORE", {"name": NAME, "sound": True, "problems": []}),
    Works(f"doctor STORE --context {NAME}", {"healthy": True, "contexts": 1}),
    Works("rollback STORE before --dry-run", {"dry_run": True, "messages_now": 5, "messages_then": 1}),
    Works("expire STORE 0d --dry-run", {"dry_run": True, "contexts": [{"name": NAME}]}),
    Works("gateway sessions STORE", []),
    Works("completion bash", {"shell": "bash", "script": str}),
)
"""Calls that change nothing."""

CHANGING = (
    Works(
        "new STORE --context other --system 小心。 --budget 2k",
        {"name": "other"},
        "render STORE -c other",
        {"budget": 2000, "messages": [{"role": "system", "content": "小心。"}, ...]},
    ),
    Works(
        "write STORE port 5433 --summary old",
        {"page": {"author": "developer"}},
        "find STORE 5433",
        [{"index": "mem-4"}],
    ),
    Works(
        "write STORE 座位 靠窗 --folder mem-2", {"changed": True, "page": {"index": "mem-1"}}, SHOW, {"detail": "靠窗"}
    ),
    Works(
        "write STORE rules Be.kind --document --pin", {"page": {"pinned": True}}, "find STORE kind", [{"index": str}]
    ),
    Works("expand STORE mem-1", {"changed": False}, SHOW, {"visibility": "expanded"}),
    Works("hide STORE mem-1", {"changed": True}, SHOW, {"visibility": "hidden", "lifecycle": "active"}),
    Works("expand STORE mem-1", {"changed": True}, SHOW, {"visibility": "expanded"}, first="hide STORE mem-2"),
    Works("pin STORE mem-1", {"changed": True, "page": {"pinned": True}}, SHOW, {"pinned": True}),
    Works("unpin STORE sys-1", {"changed": True}, "show STORE sys-1", {"pinned": False}),
    Works("archive STORE mem-1", {"changed": True}, SHOW, {"lifecycle": "hot", "parent": "mem-2"}),
    Works("restore STORE mem-1", {"changed": True}, SHOW, {"lifecycle": "active"}, first="archive STORE mem-1"),
    Works("archive STORE mem-1 --cold", {"changed": True}, SHOW, {"lifecycle": "cold", "parent": None}),
    Works("recall STORE mem-3", {"changed": True}, TREE, pages("mem-0", "mem-2", "mem-1", "mem-3")),
    Works("move STORE mem-1 mem-0 --before mem-2", {"moved": {}}, TREE, pages("mem-0", "mem-1", "mem-2", "mem-3")),
    Works("move STORE mem-2 win-0", {"moved": {"mem-2": "win-1", "mem-1": "win-2"}}, TREE, pages("mem-0", "mem-3")),
    Works("undo STORE LAST", {"undone": int}, "tree STORE usr-0", pages("usr-0", "usr-1", "usr-2")),
    Works("checkpoint STORE now", {"name": "now"}, "rollback STORE now", {"to": "now"}),
    Works("rollback STORE before", {"changed": True, "dry_run": False}, "tree STORE usr-0", pages("usr-0")),
    Works("rollback STORE --before 2", {"changed": True}, "tree STORE usr-0", pages("usr-0", "usr-1")),
    Works("fork STORE new --at before --check", {"of": NAME}, "stats STORE -c new", {"messages": 1}),
    Works("import STORE SESSION -c new", [{"context": "new", "messages": 4}, {"messages": 1}], "check STORE -c new"),
    Works("import STORE SESSION -c new --dry-run --redact", [{"before": 0}, {}], "ls STORE", [{"name": NAME}]),
    Works("import STORE SESSION -c a --conversation 1", [{"messages": 4}], "ls STORE --prefix a", [{"name": "a"}]),
    Works("export STORE DIR/a.quire", {"format": "quire"}, "import STORE DIR/a.quire -c b", [{"context": "b"}]),
    Works("export STORE DIR/a --overwrite", {"context": NAME}, first="export STORE DIR/a --format html"),
    Works("export STORE DIR/a -f json", {"format": "json"}, "import STORE DIR/a -c b", [{"context": "b"}]),
    Works("export STORE DIR/a --format openai --times", {"bytes": int}, "import STORE DIR/a -c b", [{"messages": 5}]),
    Works("export STORE DIR/a -f claude-code --view", {"format": "claude-code"}, "import STORE DIR/a -c b"),
    Works("backup STORE DIR/b.db", {"contexts": 1, "problems": []}, "tree DIR/b.db mem-2", [{"index": "mem-2"}, PAGE]),
    Works("migrate STORE DIR/b.db", {"records": int}, "stats DIR/b.db", {"messages": 5}),
    Works(
        "migrate STORE file:DIR/b --replace",
        None,
        "stats file:DIR/b",
        {"messages": 5},
        first="migrate STORE file:DIR/b",
    ),
    Works("doctor STORE --repair", {"healthy": True}),
    Works("purge STORE mem-1 --yes --keep-forks", {"pages": ["mem-1"]}, "find STORE 乘客", []),
    Works(f"delete STORE {NAME} --yes", {"contexts": [NAME]}, "ls STORE", []),
    Works("delete STORE new --yes --scrub", {"scrubbed": True}, "ls STORE", [{}], first="fork STORE new"),
    Works("expire STORE 0d --prefix 支 --archive DIR --scrub --yes", {"contexts": [{"path": str}]}, "ls STORE", []),
    Works(f"erase STORE {NAME} --yes", {"forks": ["new"]}, "ls STORE", [], first="fork STORE new"),
    Works(f"erase STORE {NAME} --yes --no-forks", {"scrubbed": True, "remains": list}, "ls STORE", []),
    Works("scrub STORE", {"scrubbed": True, "remains": []}),
    Works("mcp STORE --gateway http://127.0.0.1:9 --create --redact", slow=True),
    Works("demo --fast --no-serve", {"budget": int, "context": str}, slow=True),
    Works("replay SESSION --budget 2000", [{"call": 1}, {"call": 2}, {"quire": {"calls": 2, "illegal": 0}}]),
    Works(
        f"replay STORE --context {NAME} --strategies newest --joined --title T --price 3,0.3,15 --plot DIR/a.svg -b 2k",
        None,
    ),
    Works(
        "replay DIR --days 9 --conversation 1 -b 2k --strategies newest",
        None,
        first="export STORE DIR/a.jsonl -f openai",
    ),
    Works(
        "gateway demo STORE --fast -b 2k",
        {"answers": {"found": 7, "total": 7}, "context": str},
        "gateway handoff STORE demo-1 --client codex --folder DIR --file DIR/b.jsonl",
        {"file": str, "session_id": str},
    ),
    Works(
        "gateway run STORE --stub --budget 20k --mode fold --env OPENAI_BASE_URL --log DIR/log -- PYTHON CLIENT",
        then="gateway sessions STORE",
        shows=[{"prompt": "Which key is it?", "requests": 1}],
    ),
)

SERVING = (
    Works(
        "serve STORE --port 0 --host 127.0.0.1 --token-file DIR/token --allow-host a.example --budget 2k --create"
        f" --redact --open --context {NAME}",
        {"url": str, "address": str},
    ),
    Works("demo --fast --serve", {"context": str}, slow=True),
    Works(
        "mcp STORE --http --port 0 --host 127.0.0.1 --token-file DIR/token --allow-host a.example",
        {"url": str},
        slow=True,
    ),
    Works(
        "gateway STORE --openai http://127.0.0.1:9 --mode observe --budget 9k --port 0 --redact --token-file DIR/t",
        {"url": str},
    ),
)
"""Calls that serve until Ctrl-C, and the line that they print when they are ready."""

NO_STORE = ("ls", "stats", "render", "check", "doctor", "scrub", "serve", "gateway sessions")
"""Commands that do not create the store that they are given."""

REFUSED = {
    "invalid_value": f"""
        nonsense STORE
        demo --faster
        new STORE --context ' '
        new STORE -c new --budget 0
        import STORE no-such-file.json
        import STORE SESSION --conversation 3
        import STORE SESSION --conversation two
        import STORE SESSION --context ''
        replay no-such-file.json
        replay SESSION --budget many
        replay SESSION --strategies luck
        replay SESSION --price free
        replay SESSION --prefill no-such-file.json
        ls STORE --page 1
        tree STORE --depth -1
        tree STORE --limit -1
        find STORE
        find STORE x --limit -1
        find STORE x --kind book
        find STORE x --role king
        find STORE x --lifecycle frozen
        stats STORE --budget 1
        stats STORE --context ''
        view STORE --budget -5
        render STORE --format morse
        render STORE --recall 7
        render STORE --reserve -1
        write STORE port
        write STORE '' 5433
        write STORE port 5433 --summary '\a'
        expire STORE soon --yes
        expire STORE 0d --archive '' --yes
        move STORE mem-1
        history STORE --since yesterday
        history STORE --limit -1
        history STORE --page mem-99
        undo STORE 999
        undo STORE first
        undo STORE {"1" * 5_000}
        rollback STORE never
        rollback STORE never --dry-run
        rollback STORE 999
        rollback STORE --before 99
        checkpoint STORE 2
        fork STORE x --at 999
        mcp STORE --tools find,fly
        mcp STORE --tools write_page --read-only
        mcp STORE --prefix 'no spaces'
        mcp STORE --actor ''
        mcp STORE --http --port 70000
        mcp STORE --port 8378
        mcp STORE --token-file token
        mcp STORE --budget 0
        migrate STORE gopher:x
        doctor STORE --repaired
        scrub gopher:x
        completion tcsh
        gateway sessions STORE --mode fold
        gateway handoff STORE x --client emacs
        gateway demo STORE --budget none
        gateway run STORE
        gateway run STORE -- my-agent
        gateway run STORE --mcp --env A -- my-agent
        gateway run STORE --env A=B -- true
        gateway run STORE --env BASE_URL -- quire-no-such-client
        gateway run STORE --stub --openai http://a --anthropic http://a -- claude
        gateway STORE --anthropic gopher:x
        gateway STORE --openai https://api.openai.com --port 99999
        serve STORE --port 99999
        serve STORE --host a/b
    """,
    "invalid_operation": f"""
        new STORE --context {NAME}
        serve STORE --token-file SESSION
        write STORE port 5433 --pin
        write STORE port 5433 --document --folder mem-2
        delete STORE {NAME}
        expire STORE 0d
        purge STORE mem-1
        purge STORE mem-0 --yes
        erase STORE {NAME}
        hide STORE sys-1
        archive STORE mem-0
        restore STORE mem-3
        move STORE mem-2 mem-1
        checkpoint STORE before
        fork STORE {NAME}
        export STORE SESSION
        export STORE SESSION --format openai
        export STORE -
        export STORE DIR/a --format json --view
        backup STORE SESSION
        gateway STORE
        gateway STORE --openai https://api.openai.com --host 0.0.0.0 --allow-host a.example
    """,
    "no_such_page": """
        tree STORE mem-99
        show STORE mem-99
        show STORE MEM-1
        why STORE usr-99
        write STORE port 5433 --folder nix
        expand STORE mem-99
        pin STORE mem-99
        unpin STORE mem-99
        recall STORE mem-99
        purge STORE mem-99 --yes
    """,
    "no_such_segment": "find STORE x --segment nix",
    "no_such_context": """
        delete STORE nobody --yes
        erase STORE nobody --yes
        serve STORE --context nobody --port 0
        gateway handoff STORE nobody
    """,
}
"""The code of an error, and calls that are refused with it: the exit code is 2, and nothing changes."""
