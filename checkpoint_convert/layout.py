"""Axis layouts of weight maps. The code lies in the support library, because emitted packages read layouts too."""

from maxcode.converter.support.axis_layout import Layout, LayoutError, parse_layout

__all__ = ["Layout", "LayoutError", "parse_layout"]
