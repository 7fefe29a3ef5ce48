"""Programs from elsewhere, lifted to expressions.

TVM PrimFuncs, `te` tensors, Relax models and recorded schedules.
"""
