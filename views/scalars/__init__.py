"""The value functions of the calculus, once for every runtime: Python runs them, and numba compiles them."""
