"""Whole models: import, fusion, tuning order, memory plan, and one library of a model."""
