"""Handlers for the sessions of the gateway: their figures, and the mode of each one."""

from quire.server import responses
from quire.server.context_pool import ContextPool
from quire.server.gateway_ledger import Ledger, Mode
from quire.server.requests import Name


def list_sessions(pool: ContextPool) -> responses.GatewaySessions:
    """List the sessions of the gateway, the newest first."""
    ledger = Ledger(pool.library)
    try:
        return responses.GatewaySessions(ledger.sessions())
    finally:
        ledger.close()


def choose_mode(pool: ContextPool, *, name: Name, mode: Mode | None) -> responses.GatewaySessions:
    """Choose the mode of a session; null is the mode of its gateway. A running gateway follows within seconds."""
    ledger = Ledger(pool.library)
    try:
        ledger.choose_mode(name, mode)
        return responses.GatewaySessions(ledger.sessions())
    finally:
        ledger.close()
