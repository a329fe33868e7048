"""Drawing: the face of a context that shows it."""

from collections.abc import Callable, Mapping
from typing import Any

from quire.errors import InvalidValue, shown
from quire.pages import PageIndex
from quire.rendering.explain import Stats, Why, dump, stats, why
from quire.rendering.renderer import Renderer
from quire.system.face import Face
from quire.view.folded import Folded
from quire.view.options import CompressionConfig, RenderOptions, check_config, check_options
from quire.view.view import View


class Drawing(Face):
    """Views of one context, and explanations of them."""

    @classmethod
    def beside(cls, other: Face, config: CompressionConfig | None = None) -> "Drawing":
        """Views over the engine of another face."""
        drawing = super().beside(other)
        drawing.config = check_config(CompressionConfig() if config is None else config)
        drawing._listeners = []
        drawing._renderer = Renderer(other._engine, drawing.config, drawing._tell)
        return drawing

    config: CompressionConfig
    _listeners: list[Callable[[Folded], None]]
    _renderer: Renderer

    def render(self, options: RenderOptions | None, changes: Mapping[str, Any], budget: int) -> View:
        """A view with these options."""
        if options is not None and not isinstance(options, RenderOptions):
            raise InvalidValue(f"options is {shown(options)}; RenderOptions are needed.")
        known = RenderOptions.__struct_fields__
        for field in changes:
            if field not in known:
                raise InvalidValue(f"There is no option {shown(field)}; options are {', '.join(known)}.")
        fields = {field: getattr(options, field) for field in known} if options is not None else {}
        return self._renderer.render(check_options(RenderOptions(**{**fields, **changes})), budget)

    def why(self, index: PageIndex) -> Why:
        """Why a page is shown as it is, or not at all."""
        with self._engine.lock:
            scene = self._renderer.scene()
            return why(self._engine.current(), scene, index)

    def stats(self) -> Stats:
        """What the context holds."""
        return self._read(stats)

    def dump(self) -> str:
        """One line for every item."""
        return self._read(dump)

    def on_fold(self, listener: Callable[[Folded], None]) -> Callable[[], None]:
        """Have a function called after every fold; what is returned ends that."""
        if not callable(listener):
            raise InvalidValue(f"listener is {shown(listener)}; a function is needed.")
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _tell(self, folded: Folded) -> None:
        for listener in list(self._listeners):
            listener(folded)
