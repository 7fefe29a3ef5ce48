"""Kernels of the database as libraries or schedules, and exported libraries verified."""
