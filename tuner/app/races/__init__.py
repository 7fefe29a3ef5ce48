"""Races on this machine: of a promoted kernel and its rivals, and of imported schedules."""
