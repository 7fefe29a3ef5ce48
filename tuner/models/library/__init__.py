"""What a call of a model does, where its tensors lie, and the library written of it."""
