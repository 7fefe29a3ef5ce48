"""Whole models: their jobs, their libraries, and where their time goes."""
