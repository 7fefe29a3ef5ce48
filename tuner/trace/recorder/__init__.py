"""What runs inside a traced program: the standard library only, any Python from 3.10 on.

It is loaded by its path, so its modules import each other relatively. Whatever goes wrong
here is noted and ends the recording, never the program.
"""
