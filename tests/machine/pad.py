"""The app of the machine: a window with one text."""

from quire import App, Refresh, action


class Pad(App):
    """A pad with a text that can be replaced."""

    name = "pad"
    description = "A pad"

    def open(self, text: str) -> None:
        self.text = text

    def content(self) -> str:
        return self.text

    def save(self) -> str:
        return self.text

    def restore(self, saved: str) -> None:
        self.text = saved

    @action
    def write(self, text: str) -> Refresh:
        """Replace the text."""
        self.text = text
        return Refresh("written")
