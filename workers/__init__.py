"""Measuring on a fleet of workers, and the engine that carries out jobs on it."""
