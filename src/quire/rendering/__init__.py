"""Rendering: folding when it is needed, drawing, and explaining what was drawn."""

from quire.rendering.drawing import Drawing
from quire.rendering.explain import Stats, Why
from quire.rendering.outlook import Outlook
from quire.rendering.usage import Usage
from quire.view.bill import Bill, Price
from quire.view.options import CompressionConfig, RenderOptions
from quire.view.view import AnthropicRequest, Difference, View

__all__ = [
    "AnthropicRequest",
    "Bill",
    "CompressionConfig",
    "Difference",
    "Drawing",
    "Outlook",
    "Price",
    "RenderOptions",
    "Stats",
    "Usage",
    "View",
    "Why",
]
