"""List the peers, their environments and their workloads, without importing any of them."""

from dataclasses import dataclass

ALL = ("turn", "resume", "writers", "life")
IN_MEMORY = ("turn", "life")


@dataclass(frozen=True)
class Entry:
    """One row of the tables."""

    name: str
    where: str
    """The module in `bench.peers.adapters` and its class."""

    package: str = ""
    requirements: str = ""
    """The file in `requirements` that installs it; empty if quire's own requirements are enough."""

    does: str = ""
    works: tuple[str, ...] = ALL
    environment: str = "peers"

    @property
    def durable(self) -> bool:
        """True if it stores its messages on disk."""
        return "writers" in self.works or "resume" in self.works


FLOOR = "raw floor"
OURS = "quire"
NOTHING = "no management"

_LANGCHAIN = "langchain-core"

PEERS = (
    Entry(FLOOR, "floor:Floor", does="one INSERT and commit, then the newest messages that fit, from kept counts"),
    Entry("raw floor, synced", "floor:SyncedFloor", does="the same, waiting for the disk", works=("turn", "writers")),
    Entry(OURS, "quire_context:Quire", does="`quire.open(…, budget=…)`, `add`, `render().openai()`"),
    Entry("quire, synced", "quire_context:SyncedQuire", does='with `durability="full"`', works=("turn", "writers")),
    Entry(NOTHING, "nothing:Nothing", does="everything is sent, whatever it costs", works=("life",)),
    Entry(
        "langchain trim_messages, exact",
        "langchain:Trimmed",
        _LANGCHAIN,
        "langchain",
        "the last messages that fit, beginning with the user; every count is looked up",
        IN_MEMORY,
    ),
    Entry(
        "langchain trim_messages, approximate",
        "langchain:Estimated",
        _LANGCHAIN,
        "langchain",
        "the same with the counter that LangChain brings along",
        IN_MEMORY,
    ),
    Entry(
        "langchain SummarizationMiddleware",
        "langchain:Summarized",
        "langchain",
        "langchain",
        "at 80 % of the room, a summary of about 300 tokens replaces the oldest messages; 30 % stay "
        "(*Replayed sessions* has other settings). A scripted model writes it; its input and output are billed",
        IN_MEMORY,
    ),
    Entry(
        "langgraph SqliteSaver",
        "langgraph:Graph",
        "langgraph",
        "langchain",
        "a graph invoked for every message; its node trims exactly (its lists are those of `trim_messages`)",
        ("turn", "resume", "writers"),
    ),
    Entry(
        "openai-agents SQLiteSession, limit",
        "openai_agents:Limited",
        "openai-agents",
        "openai-agents",
        "`SessionSettings(limit=N)`: the last N items at the start of a turn; N comes from the budget",
    ),
    Entry(
        "openai-agents SQLiteSession, all",
        "openai_agents:Whole",
        "openai-agents",
        "openai-agents",
        "the same without a limit (its lists are those of no management)",
        ("turn", "resume"),
    ),
    Entry(
        "llama-index Memory",
        "llama_index:Stored",
        "llama-index-core",
        "llama-index",
        "a token limit over a SQLite chat store; all of the room is for the history",
    ),
    Entry(
        "llama-index ChatMemoryBuffer",
        "llama_index:Buffer",
        "llama-index-core",
        "llama-index",
        "a token limit over a list in memory",
        IN_MEMORY,
    ),
    Entry(
        "google-adk DatabaseSessionService",
        "google_adk:Recent",
        "google-adk",
        "google-adk",
        "`num_recent_events` at the start of a turn, computed from the budget",
    ),
    Entry(
        "strands FileSessionManager",
        "strands:Sliding",
        "strands-agents",
        "strands",
        "a sliding window of N messages, applied at the end of a turn; N comes from the budget",
    ),
    Entry(
        "semantic-kernel truncation reducer",
        "semantic_kernel:Reduced",
        "semantic-kernel",
        "semantic-kernel",
        "cuts to N messages; N comes from the budget; the cut messages are lost",
        IN_MEMORY,
    ),
    Entry(
        "pydantic-ai dump and slice",
        "pydantic_ai:Dumped",
        "pydantic-ai-slim",
        "pydantic-ai",
        "the whole history as one JSON file; the last N messages; N comes from the budget",
    ),
    Entry(
        "headroom compress",
        "headroom:Compressed",
        "headroom-ai",
        "headroom",
        "rewrites bodies, drops nothing; its learned compressor needs a download and is absent",
        IN_MEMORY,
        "headroom",
    ),
)

SEARCHERS = (
    Entry("bare FTS5, words", "floor:WordIndex", does="unicode61", works=("search",)),
    Entry("bare FTS5, trigrams", "floor:TrigramIndex", does="trigram", works=("search",)),
    Entry(OURS, "quire_context:QuireSearch", does="`ctx.find`", works=("search",)),
    Entry(
        "google-adk SqliteMemoryService",
        "google_adk:MemorySearch",
        "google-adk",
        "google-adk",
        "`search_memory`",
        ("search",),
    ),
    Entry(
        "openai-agents AdvancedSQLiteSession",
        "openai_agents:TurnSearch",
        "openai-agents",
        "openai-agents",
        "`find_turns_by_content`",
        ("search",),
    ),
)


def chosen(names: str = "") -> list[Entry]:
    """Return quire, the floors and the peers with one of these words in their names (`adk,langchain`); default: all."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    entries = [*PEERS, *SEARCHERS]
    if not wanted:
        return entries
    found = [entry for entry in entries if any(name in entry.name for name in wanted)]
    if not found:
        raise SystemExit(f"No peer is called {names!r}. There are: {', '.join(entry.name for entry in entries)}.")
    return [
        entry for entry in entries if entry in found or entry.name in (FLOOR, OURS) or entry.name.startswith("bare")
    ]
