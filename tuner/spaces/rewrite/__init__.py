"""Analysis and rewriting of expressions before they are scheduled: access maps,
liveness, fusion groups, other algorithms."""
