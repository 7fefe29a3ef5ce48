"""Tensor operators as programs: what the readers of ONNX files and PyTorch programs share."""
