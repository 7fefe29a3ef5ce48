"""Measuring on another machine, through the agent that runs there."""
