"""Strategies by name, and recorded tables with the features a search would see."""
