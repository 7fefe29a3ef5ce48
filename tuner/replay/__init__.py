"""Recorded tables of trials, and the comparison of search strategies on them."""
