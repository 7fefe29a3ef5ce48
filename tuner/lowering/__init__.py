"""From programs of the loop-nest IR to machine code. The only package that imports TVM."""
