"""The map library of the numba executor: stores in raw memory, specialised by generated modules.

`shapes.hashed` and `shapes.ordered` give a module of jitted functions for a shape of map,
`cuts.cut_source` the text of a cut search, `int128.Int128` exact 128-bit numbers.
"""
