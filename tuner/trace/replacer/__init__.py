"""What runs inside a program whose traced calls are answered by kernels: the standard
library only, any Python from 3.10 on.

It is loaded by its path, so its modules import each other relatively. Whatever goes wrong
here is noted and leaves calls to the library, never ends the program.
"""
