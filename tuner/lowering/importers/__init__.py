"""Programs from elsewhere: TVM PrimFuncs, te tensors, Relax models and recorded
schedules, lifted to expressions."""
