"""How a server is to be: everything that can be set, with what holds where nothing is said."""

from dataclasses import dataclass

from quire.view.options import DEFAULT_BUDGET
from quire.windows.app import App


@dataclass(frozen=True, kw_only=True)
class Options:
    """Limits and names of one server. Times are seconds, sizes bytes.

    `hosts` are further names it may be asked by; `patience` is how long a body may take to come, `timeout` an answer;
    `poll` is how often the store is asked for changes of others, `heartbeat` when a silent stream says so.
    """

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    budget: int = DEFAULT_BUDGET
    apps: tuple[type[App], ...] = ()
    contexts: int = 32
    threads: int = 16
    listeners: int = 100
    max_body: int = 16 << 20
    patience: float = 30.0
    timeout: float = 60.0
    poll: float = 0.25
    heartbeat: float = 15.0
    grace: int = 10
