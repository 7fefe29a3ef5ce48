"""Drawings as SVG text: pure functions from numbers to markup, used by the pages and by
the self-contained report."""
