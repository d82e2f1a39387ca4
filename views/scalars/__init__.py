"""The value functions of the calculus, once for every runtime: Python runs them, and numba compiles them.

Functions of numbers and moments are plain Python that numba compiles as it is, so that the interpreter
and generated code cannot differ. `evaluate` applies any of them by the name it has in the calculus.
"""
