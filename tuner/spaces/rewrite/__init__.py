"""Analysis and rewriting of expressions before they are scheduled.

Access maps, liveness, dead-code elimination, fusion groups, and other algorithms.
"""
