"""Rendering: folding when it is needed, drawing, and explaining what was drawn."""

from quire.rendering.drawing import Drawing
from quire.rendering.explain import Stats, Why
from quire.view.options import CompressionConfig, RenderOptions
from quire.view.view import AnthropicRequest, Difference, Price, View

__all__ = [
    "AnthropicRequest",
    "CompressionConfig",
    "Difference",
    "Drawing",
    "Price",
    "RenderOptions",
    "Stats",
    "View",
    "Why",
]
