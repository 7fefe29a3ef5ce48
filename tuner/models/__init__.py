"""Whole models: an ONNX file as a graph of expressions, fused, scheduled, and exported
as one library."""
