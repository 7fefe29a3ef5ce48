"""Whole models: tuned, exported, and where their time goes."""
