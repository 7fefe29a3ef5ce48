"""Programs from elsewhere, lifted to expressions.

TVM PrimFuncs, `te` tensors and recorded schedules.
"""
