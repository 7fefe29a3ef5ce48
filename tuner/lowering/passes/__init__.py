"""TIR passes of our own, run over a scheduled module before TVM's code generator reads it."""
