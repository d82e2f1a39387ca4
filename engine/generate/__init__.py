"""Generates the numba module of a plan: readable Python text, one function a trigger."""
