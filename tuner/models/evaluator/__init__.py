"""Operators for ONNX's reference evaluator, which lacks them or computes them otherwise."""
