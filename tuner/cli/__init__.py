"""The `tuner` command: one file per noun, each loading what it needs when it runs."""

from tuner.cli.entry import main

__all__ = ["main"]
