"""ONNX files as graphs of expressions: each operator's attributes in, its program out."""
