"""The map library of the numba executor: stores in raw memory, specialised by generated modules.

`shapes.hashed`, `shapes.ordered` and `shapes.dense` give a module of jitted functions for a shape of map,
`cuts.cut_source` the text of a cut search, `wide_numbers.Int128` exact 128-bit numbers.
"""
