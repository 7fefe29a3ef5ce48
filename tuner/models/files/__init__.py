"""Reading what users give: ONNX files, values and shapes of inputs."""
