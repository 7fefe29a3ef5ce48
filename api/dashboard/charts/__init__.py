"""Drawings as SVG text: pure functions from numbers to markup."""
