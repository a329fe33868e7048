"""The floor plan: a module imports only from lower floors, deferred imports included, and never in a circle."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import quire

FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "clock"),
    (
        "text",
        "embedders",
        "pages",
        "ranks",
        "tokens",
        "images",
        "media",
        "messages",
        "models",
        "cache",
        "numbering",
        "legal",
        "values",
    ),
    (
        "storage",
        "storage.addresses",
        "storage.base",
        "storage.absence",
        "storage.table",
        "storage.nearby",
        "storage.memory",
        "storage.log",
        "storage.names",
        "storage.schema",
        "storage.rows",
        "storage.searching",
        "storage.fts",
        "storage.ftscheck",
        "storage.guard",
        "storage.symptoms",
        "storage.upkeep",
        "storage.lines",
        "storage.shares",
        "storage.sqlite",
        "storage.overlay",
        "storage.postgres.address",
        "storage.postgres.schema",
        "storage.postgres.writing",
        "storage.postgres.faults",
        "storage.postgres.watching",
        "storage.postgres.pool",
        "storage.postgres.session",
        "storage.postgres.mending",
        "storage.postgres.migrating",
        "storage.postgres.shares",
        "storage.postgres.search",
        "storage.postgres.checking",
        "storage.postgres.owners",
        "storage.postgres.whole",
        "storage.postgres.storage",
        "storage.postgres",
        "storage.s3.names",
        "storage.s3.entries",
        "storage.s3.reasons",
        "storage.s3.objects",
        "storage.s3.chunks",
        "storage.s3.runs",
        "storage.s3.heads",
        "storage.s3.standing",
        "storage.s3.books",
        "storage.s3.sealing",
        "storage.s3.probing",
        "storage.s3.connecting",
        "storage.s3.makings",
        "storage.s3.upkeep",
        "storage.s3.examining",
        "storage.s3.storage",
        "storage.s3",
        "providers",
        "providers.envelopes",
        "providers.shapes",
        "providers.plain",
        "providers.originals",
        "providers.own",
        "providers.parts",
        "providers.blocks",
        "providers.items",
        "providers.thoughts",
        "providers.usage",
        "providers.distinct",
        "providers.openai",
        "providers.responses",
        "providers.anthropic",
    ),
    ("records", "schemas"),
    (
        "storage.mirror",
        "storage.folderlog",
        "storage.file",
        "storage.opening",
        "storage.soundness",
        "storage.migrate",
        "reader",
    ),
    ("recorded",),
    ("state",),
    (
        "search",
        "search.words",
        "search.query",
        "search.scoring",
        "search.snippets",
        "search.scope",
        "search.kept",
        "search.memory",
        "search.layers",
        "search.texts",
        "search.echoes",
        "search.catching",
        "search.catalogue",
        "search.ranking",
        "search.stems",
        "search.recalling",
        "search.vectors",
        "search.gathering",
        "search.finding",
    ),
    ("plan",),
    ("chapters",),
    ("anchors",),
    ("engine", "exchanges", "extracts", "system.rules", "system.present"),
    ("standins",),
    (
        "system.lifecycle",
        "system.tree",
        "system.segments",
        "system.journal",
        "system.reverting",
        "system.standing",
        "system.purging",
        "system.forgetting",
        "system.transcript",
        "system.marshalling",
        "system.unmarshalling",
        "system.check",
    ),
    ("system.face", "system.editing", "system.reading", "system.timeline", "system.keeping", "system.erasing"),
    ("system.facade", "system.pagestore", "system"),
    (
        "windows",
        "windows.actions",
        "windows.app",
        "windows.frames",
        "windows.runner",
        "windows.launcher",
        "windows.keeping",
        "windows.registry",
        "windows.live",
        "windows.window",
        "windows.shop",
        "windows.box.todo",
        "windows.box.scratch",
        "windows.box.folder",
        "windows.box.files",
        "windows.box.tables",
        "windows.box",
    ),
    (
        "conversation.results",
        "conversation.arrivals",
        "conversation.healing",
        "conversation.sequence",
        "conversation.items",
        "conversation.edits",
        "conversation.batches",
        "conversation.cleanup",
        "conversation.importing",
        "conversation.modify",
        "conversation.temporary",
        "conversation.facade",
        "conversation",
    ),
    (
        "view",
        "view.options",
        "view.folded",
        "view.bill",
        "view.preamble",
        "view.clip",
        "view.lines",
        "view.parts",
        "view.quoting",
        "view.sizes",
        "view.maker",
        "view.steady",
        "view.draw",
        "view.tail",
        "view.scene",
        "view.view",
    ),
    ("windows.pieces", "windows.facade", "windows.calls"),
    (
        "fold",
        "fold.cues",
        "fold.facts",
        "fold.gate",
        "fold.summaries",
        "fold.better",
        "fold.gathering",
        "fold.folding",
        "fold.fitting",
    ),
    (
        "rendering.usage",
        "rendering.outlook",
        "rendering.pauses",
        "rendering.recollection",
        "rendering.explain",
        "rendering.summarising",
        "rendering.renderer",
        "rendering.drawing",
        "rendering",
    ),
    (
        "agent.rights",
        "agent.sight",
        "agent.outline",
        "agent.gate",
        "agent.quota",
        "agent.planning",
        "agent.opening",
        "agent.facade",
        "agent.desk",
        "agent.handlers",
        "agent.table",
        "agent.schemas",
        "agent.arguments",
        "agent.wording",
        "agent.tools",
        "agent",
    ),
    (
        "operations",
        "operations.exporting",
        "operations.usage",
        "operations.retention",
        "operations.indexes",
        "operations.backup",
        "operations.doctor",
    ),
    ("context",),
    (
        "library",
        "testing",
        "testing.case",
        "testing.contexts",
        "testing.contract",
        "testing.copying",
        "testing.faulty",
        "testing.forking",
        "testing.forks",
        "testing.names",
        "testing.order",
        "testing.records",
        "testing.sharing",
    ),
    ("aio.lanes", "aio.faces", "aio.entrance", "aio.doors", "aio"),
    ("adapters", "adapters.shared", "adapters.shared.opening"),
    ("adapters.shared.following",),
    ("adapters.shared.shelf",),
    ("adapters.shared.turns",),
    (
        "adapters.anthropic.memories",
        "adapters.anthropic.memory",
        "adapters.anthropic.asking",
        "adapters.anthropic",
        "adapters.openai",
        "adapters.openai_agents.stores",
        "adapters.openai_agents.holding",
        "adapters.openai_agents.items",
        "adapters.openai_agents.session",
        "adapters.openai_agents",
        "adapters.langchain.messages",
        "adapters.langchain.originals",
        "adapters.langchain.tools",
        "adapters.langchain.history",
        "adapters.langchain.middleware",
        "adapters.langchain",
        "adapters.langgraph.matching",
        "adapters.langgraph.catalogue",
        "adapters.langgraph.store",
        "adapters.langgraph",
        "adapters.pydantic_ai.messages",
        "adapters.pydantic_ai.toolset",
        "adapters.pydantic_ai.capability",
        "adapters.pydantic_ai",
    ),
    ("",),
    ("web", "web.keys", "web.listening", "web.visitors"),
    (
        "server.asked",
        "server.told",
        "server.failures",
        "server.metrics",
        "server.undone",
        "server.calls",
        "server.options",
    ),
    ("server.shelf", "server.live", "server.gate"),
    ("server.desk",),
    (
        "server.handlers",
        "server.handlers.contexts",
        "server.handlers.pages",
        "server.handlers.messages",
        "server.handlers.views",
        "server.handlers.history",
        "server.handlers.search",
        "server.handlers.windows",
    ),
    ("server.routes",),
    ("server.openapi",),
    ("server.app",),
    ("server.running",),
    ("server",),
    ("mcp_server.addresses",),
    ("mcp_server.book",),
    ("mcp_server.changes",),
    ("mcp_server.listeners",),
    ("mcp_server.protocol",),
    ("mcp_server.stdio", "mcp_server.http"),
    ("mcp_server",),
    (
        "cli.paint",
        "cli.width",
        "cli.words",
        "cli.visible",
        "cli.grid",
        "cli.tree",
        "cli.out",
        "cli.progress",
        "cli.charts.scale",
        "cli.charts.svg",
        "cli.charts.lines",
        "cli.charts.bars",
        "cli.charts",
        "cli.opening",
        "cli.values",
        "cli.rehearsal",
        "cli.serving",
        "cli.command",
        "cli.histories.unwrapping",
        "cli.histories.files",
        "cli.histories",
        "cli.replaying",
        "cli.replaying.rates",
        "cli.replaying.facts",
        "cli.replaying.counting",
        "cli.replaying.prefix",
        "cli.replaying.refusals",
        "cli.replaying.tally",
        "cli.replaying.strategies.base",
        "cli.replaying.strategies.windows",
        "cli.replaying.strategies.truncating",
        "cli.replaying.strategies.clearing",
        "cli.replaying.strategies.summarising",
        "cli.replaying.strategies.ours",
        "cli.replaying.strategies.table",
        "cli.replaying.strategies",
        "cli.replaying.recorded",
        "cli.replaying.life",
        "cli.replaying.report",
        "cli.replaying.plot",
        "cli.replaying.sliding",
        "cli.replaying.stage",
        "cli.replaying.calls",
        "cli.replaying.table",
    ),
    (
        "cli.demo.talk.said",
        "cli.demo.talk.cause",
        "cli.demo.talk.repair",
        "cli.demo.talk.report",
        "cli.demo.talk",
        "cli.demo.measure",
        "cli.demo.replay",
        "cli.demo.table",
        "cli.demo.after",
        "cli.demo.rest",
        "cli.demo.window",
        "cli.demo",
    ),
    (
        "cli.commands",
        "cli.speech",
        "cli.commands.care",
        "cli.commands.contexts",
        "cli.commands.completion",
        "cli.commands.demo",
        "cli.commands.importing",
        "cli.commands.keeping",
        "cli.commands.looking",
        "cli.commands.mcp",
        "cli.commands.pages",
        "cli.commands.replay",
        "cli.commands.serving",
        "cli.commands.timeline",
        "cli.commands.views",
    ),
    ("cli.usage", "cli"),
    ("__main__",),
)
"""The rooms of each floor, the lowest first; `""` is the package itself. Every module stands here once."""

TOWER = frozenset(name for name in FLOORS[2] if name.startswith("storage"))
"""The side tower: backends that know bytes and errors and nothing of pages."""

Sources = Mapping[str, str]


def name_of(room: str) -> str:
    return f"quire.{room}" if room else "quire"


def imports(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """The known modules a source imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                found = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0):
                members = [f"{node.module}.{alias.name}" for alias in node.names]
                found = [member if member in known else str(node.module) for member in members]
            case ast.ImportFrom():
                found = ["a relative import"]
            case ast.Call(args=[ast.Constant(value=str() as module), *_]) if _imports_by_name(node.func):
                found = [module]
            case _:
                continue
        yield from (module for module in found if module in known or module == "a relative import")


def _imports_by_name(function: ast.expr) -> bool:
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return called in ("import_module", "__import__")


def complaints(sources: Sources, floors: Sequence[Sequence[str]], tower: frozenset[str]) -> list[str]:
    """Everything that is wrong with the plan."""
    rooms = [name_of(room) for floor in floors for room in floor]
    level = {name_of(room): number for number, floor in enumerate(floors) for room in floor}
    found = [f"{room} is listed twice" for room in sorted({room for room in rooms if rooms.count(room) > 1})]
    found += [f"{module} is on no floor" for module in sorted(sources.keys() - level.keys())]
    found += [f"{room} is listed and does not exist" for room in sorted(level.keys() - sources.keys())]
    graph = {module: set(imports(source, sources)) - {module} for module, source in sources.items()}
    allowed = {name_of(room) for room in tower} | {"quire.errors", "quire.cache"}
    for module, targets in graph.items():
        for target in sorted(targets):
            if level.get(target, len(floors)) > level.get(module, -1):
                found.append(f"{module} imports {target}, which stands higher")
            if module in allowed and target not in allowed:
                found.append(f"{module} is in the tower and imports {target}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"a circle: {' → '.join(error.args[1])}")
    return found


def real_sources() -> dict[str, str]:
    package = Path(quire.__file__).parent
    sources = {}
    for path in package.rglob("*.py"):
        parts = ["quire", *path.relative_to(package).with_suffix("").parts]
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return sources


def test_imports_point_down_only() -> None:
    assert complaints(real_sources(), FLOORS, TOWER) == []


# The test itself can fail


SMALL: dict[str, str] = {
    "quire": "from quire.top import x",
    "quire.errors": "",
    "quire.low": "import os",
    "quire.low2": "",
    "quire.top": "from quire.low import x\nfrom quire import errors",
    "quire.store": "import quire.errors",
}
SMALL_FLOORS = (("errors",), ("low", "low2", "store"), ("top",), ("",))
SMALL_TOWER = frozenset({"store"})


def complaints_with(**changed: str) -> list[str]:
    sources = SMALL | {name_of(room): source for room, source in changed.items()}
    return complaints(sources, SMALL_FLOORS, SMALL_TOWER)


def test_a_sound_plan_has_no_complaints() -> None:
    assert complaints_with() == []
    assert complaints_with(low="from quire.low2 import x") == []


def test_an_upward_import_is_found_wherever_it_stands() -> None:
    upward = ["quire.low imports quire.top, which stands higher"]
    for source in (
        "import quire.top",
        "from quire.top import x",
        "from quire import top",
        "def f():\n    from quire.top import x",
        "if TYPE_CHECKING:\n    from quire.top import X",
        "from importlib import import_module\nimport_module('quire.top')",
        "import importlib\nimportlib.import_module('quire.top', None)",
        "__import__('quire.top')",
    ):
        assert complaints_with(low=source)[:1] == upward, source


def test_the_package_itself_stands_above_its_rooms() -> None:
    assert "quire.low imports quire, which stands higher" in complaints_with(low="import quire")


def test_a_circle_on_one_floor_is_found() -> None:
    found = complaints_with(low="import quire.low2", low2="import quire.low")
    assert len(found) == 1
    assert found[0].startswith("a circle")


def test_a_module_on_no_floor_and_one_on_two_are_found() -> None:
    assert complaints_with(new="") == ["quire.new is on no floor"]
    assert complaints(SMALL, (*SMALL_FLOORS, ("low",)), SMALL_TOWER)[0] == "quire.low is listed twice"
    assert complaints(SMALL, (*SMALL_FLOORS, ("gone",)), SMALL_TOWER) == ["quire.gone is listed and does not exist"]


def test_the_tower_knows_nothing_but_itself_and_errors() -> None:
    assert complaints_with(store="import quire.low") == ["quire.store is in the tower and imports quire.low"]


def test_a_relative_import_is_not_allowed() -> None:
    assert complaints_with(low="from . import top") != []
