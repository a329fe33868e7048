"""No management: everything is sent, whatever it costs and whether or not it fits."""

from bench.peers.peer import Peer, Setting
from bench.traces import Values


class Nothing(Peer):
    """A list that only grows."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._messages = [setting.system]

    def append(self, message: Values) -> None:
        self._messages.append(message)

    def render(self) -> list[Values]:
        return list(self._messages)
