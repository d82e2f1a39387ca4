"""The text of a hashed store's module: exact lookups, slices by partial keys, scans."""

from string import Template

from orderbook.engine.maps.store_layout import (
    Column,
    all_zero,
    columns,
    indent,
    names,
    read_entry,
    sum_entry,
    tuple_of,
    width,
    write_entry,
)

HEAD = Template('''\
"""$title"""

from orderbook.engine.maps.store_layout import (
    ADDRESS, ADDRESS_BITS, DIRECTORY, ERROR, SEED, SHIFT, SIZE, SLICES, SLOTS, TAG
)
from orderbook.engine.maps.wide_numbers import add_double, checked_add, load_wide, store_wide, wide
from orderbook.engine.maps.memory import (
    calloc, high_bits, load, load_double, mix, release, store, store_double
)
from orderbook.engine.maps.hash_index import (
    index_bytes, index_clear, index_close, index_first, index_insert, index_next, index_open, index_remove,
)
from orderbook.engine.maps.shapes import hashed
from orderbook.core.jit import jit

KEY_WORDS = $key_words
LAYOUT = "$layout"
WORDS = $words
$slice_imports

''')

STORE = Template('''\
@jit()
def create():
    """A new empty store: the address of its header."""
    H = calloc($header_words, 8)
    index_open(H, $key_words, $entry_words)
$create_slices
    return H


@jit()
def destroy(H):
    """Give back all memory; the handle is dead."""
$destroy_slices
    index_close(H)
    release(H)


@jit()
def clear(H):
    """Remove every entry, and give back their memory but some for the next."""
$clear_slices
    index_clear(H)


@jit()
def find(H, $keys):
    """The entry with this key, or 0."""
    h = high_bits($hash, 1)
    word = load(load(H, DIRECTORY), h >> load(H, SHIFT))
    segment = word & ADDRESS
    mask = (1 << (word >> ADDRESS_BITS)) - 1
    tag = (h & TAG) << ADDRESS_BITS
    at = h & TAG & mask
    while True:
        slot = load(segment, SLOTS + at)
        if slot == 0:
            return 0
        entry = slot ^ tag
        if entry >> ADDRESS_BITS == 0 and $same_key:
            return entry
        at = (at + 1) & mask


@jit()
def insert(H, $keys):
    """A new entry for a key that is not there; its values must be written next."""
    entry = index_insert(H, high_bits($hash, 1))
$store_keys
$link
    return entry


@jit()
def remove(H, entry):
    """Remove an entry that is there."""
$unlink
    index_remove(H, entry)


@jit()
def add_at(H, entry, $keys, $deltas):
    """Add to the values of a key whose entry, or 0, is known: what its entry is then, or 0."""
    if entry == 0:
        if $no_delta:
            return 0
        entry = insert(H, $keys)
$write_deltas
        return entry
$sums
    if $no_value:
        remove(H, entry)
        return 0
$write_sums
    return entry


@jit()
def add(H, $keys, $deltas):
    """Add to the values of a key: its entry, or 0 when it is not there afterwards."""
    return add_at(H, find(H, $keys), $keys, $deltas)


@jit()
def assign_at(H, entry, $keys, $values):
    """Set the values of a key whose entry, or 0, is known: what its entry is then, or 0."""
    if $no_value:
        if entry != 0:
            remove(H, entry)
        return 0
    if entry == 0:
        entry = insert(H, $keys)
$write_values
    return entry


@jit()
def assign(H, $keys, $values):
    """Set the values of a key: its entry, or 0 when they are all zero."""
    return assign_at(H, find(H, $keys), $keys, $values)


@jit()
def get(H, $keys):
    """The values of a key, zeros when it is not there."""
    entry = find(H, $keys)
    if entry == 0:
        return $zeros
    return $reads


@jit()
def size(H):
    """How many entries there are."""
    return load(H, SIZE)


@jit()
def error(H):
    """Not 0 after a sum overflowed 128 bits."""
    return load(H, ERROR)


@jit()
def memory_bytes(H):
    """Bytes of memory held."""
    return $bytes


@jit()
def first(H):
    """Some entry, or 0. Nothing may be inserted or removed during a scan."""
    return index_first(H)


@jit()
def next_entry(H, entry):
    """The entry after this one in the scan's order, or 0."""
    return index_next(H, entry)


''')

SCALAR = Template('''\
ENTRY = 16


@jit()
def create():
    """A new empty store: the address of its header, which holds the only entry."""
    return calloc($header_words, 8)


@jit()
def destroy(H):
    """Give back all memory; the handle is dead."""
    release(H)


@jit()
def clear(H):
    """Set every value to zero."""
    store(H, SIZE, 0)
    entry = H + 8 * ENTRY
$write_zeros


@jit()
def find(H):
    """The entry, or 0 when it holds nothing."""
    return H + 8 * ENTRY if load(H, SIZE) else 0


@jit()
def add(H, $deltas):
    """Add to the values: the entry, or 0 when it holds nothing afterwards."""
    entry = H + 8 * ENTRY
$scalar_sums
    if $no_value:
        clear(H)
        return 0
$scalar_write_sums
    store(H, SIZE, 1)
    return entry


@jit()
def assign(H, $values):
    """Set the values: the entry, or 0 when they are all zero."""
    entry = H + 8 * ENTRY
    if $no_value:
        clear(H)
        return 0
$scalar_write_values
    store(H, SIZE, 1)
    return entry


@jit()
def get(H):
    """The values, zeros when there is no entry."""
    entry = H + 8 * ENTRY
    return $reads


@jit()
def size(H):
    """1 when the entry holds anything."""
    return load(H, SIZE)


@jit()
def error(H):
    """Not 0 after a sum overflowed 128 bits."""
    return load(H, ERROR)


@jit()
def memory_bytes(H):
    """Bytes of memory held."""
    return 8 * $header_words


@jit()
def first(H):
    """The entry, or 0."""
    return find(H)


@jit()
def next_entry(H, entry):
    """0: there is no other."""
    return 0


''')

EXPORT = Template('''\
@jit()
def export(H, out, rows):
    """Copy the first entries of a scan, so many at most, to int64[rows, $words] at the address `out`."""
    entry = first(H)
    for row in range(rows):
        if entry == 0:
            return
        for word in range($words):
            store(out, row * $words + word, load(entry, word))
        entry = next_entry(H, entry)
''')

KEY = Template('''

@jit()
def key_$number(entry):
    """Key word $number of an entry."""
    return load(entry, $number)
''')

VALUE = Template('''

@jit()
def value_$number(entry):
    """Value $number of an entry."""
    return $read
''')

SLICE = Template('''

@jit()
def slice_${number}_first(H, $keys):
    """Some entry whose key positions $positions hold these words, or 0."""
    return slice_$number.get(load(H, SLICES + $number), $keys)[0]


@jit()
def slice_${number}_next(entry):
    """Another entry of the same slice, or 0."""
    return load(entry, $link)
''')


def _link(number: int, positions: tuple[int, ...], at: int) -> list[str]:
    keys = ", ".join(f"k{p}" for p in positions)
    return [
        f"heads = load(H, SLICES + {number})",
        f"head = slice_{number}.find(heads, {keys})",
        f"after = load(head, {len(positions)}) if head != 0 else 0",
        f"store(entry, {at}, after)",
        f"store(entry, {at + 1}, 0)",
        "if after != 0:",
        f"    store(after, {at + 1}, entry)",
        f"    store(head, {len(positions)}, entry)",
        "else:",
        f"    slice_{number}.assign(heads, {keys}, entry)",
    ]


def _unlink(number: int, positions: tuple[int, ...], at: int) -> list[str]:
    keys = ", ".join(f"load(entry, {p})" for p in positions)
    return [
        f"after = load(entry, {at})",
        f"before = load(entry, {at + 1})",
        "if after != 0:",
        f"    store(after, {at + 1}, before)",
        "if before != 0:",
        f"    store(before, {at}, after)",
        "else:",
        f"    slice_{number}.assign(load(H, SLICES + {number}), {keys}, after)",
    ]


def _kept(key_words: int, slices: tuple[tuple[int, ...], ...], links: list[int]) -> dict[str, str]:
    """Pieces that make a store and keep its keys and slices."""
    hash_text = "SEED"
    for i in range(key_words):
        hash_text = f"mix({hash_text}, k{i})"

    def for_slices(text: str) -> list[str]:
        return [text.format(j=j) for j in range(len(slices))]

    memory = [f"8 * (SLICES + {len(slices)}) + index_bytes(H)"]
    return {
        "slice_imports": "\n".join(f'slice_{j} = hashed({len(s)}, "i", ())' for j, s in enumerate(slices)),
        "create_slices": indent(for_slices("store(H, SLICES + {j}, slice_{j}.create())")),
        "destroy_slices": indent(for_slices("slice_{j}.destroy(load(H, SLICES + {j}))")),
        "clear_slices": indent(for_slices("slice_{j}.clear(load(H, SLICES + {j}))")),
        "bytes": " + ".join(memory + for_slices("slice_{j}.memory_bytes(load(H, SLICES + {j}))")),
        "hash": hash_text,
        "keys": names("k", key_words),
        "same_key": " and ".join(f"load(entry, {i}) == k{i}" for i in range(key_words)),
        "store_keys": indent([f"store(entry, {i}, k{i})" for i in range(key_words)]),
        "link": indent([x for j, s in enumerate(slices) for x in _link(j, s, links[j])]),
        "unlink": indent([x for j, s in enumerate(slices) for x in _unlink(j, s, links[j])]),
    }


def _valued(cols: tuple[Column, ...], layout: str, base: int) -> dict[str, str]:
    """Pieces that read and write the values of an entry: from word `base`, in a scalar store from 0."""

    def writes(prefix: str, at: int) -> list[str]:
        return [line for c in cols for line in write_entry(c, at, f"{prefix}{c.number}")]

    def sums(at: int) -> list[str]:
        return [line for c in cols if c.counts for line in sum_entry(c, at, "H + 8 * ERROR")]

    def write_sums(at: int) -> list[str]:
        return [
            line
            for c in cols
            for line in (
                write_entry(c, at, f"v{c.number}")
                if c.counts
                else [f"add_double(entry, {at + c.offset}, d{c.number})"]
            )
        ]

    return {
        "deltas": names("d", len(cols)),
        "values": names("v", len(cols)),
        "no_delta": all_zero(layout, "d"),
        "no_value": all_zero(layout, "v"),
        "write_deltas": indent(writes("d", base), 2),
        "write_values": indent(writes("v", base)),
        "sums": indent(sums(base)),
        "write_sums": indent(write_sums(base)),
        "zeros": tuple_of([c.zero for c in cols]),
        "reads": tuple_of([read_entry(c, base) for c in cols]),
        "scalar_sums": indent(sums(0)),
        "scalar_write_sums": indent(write_sums(0)),
        "scalar_write_values": indent(writes("v", 0)),
        "write_zeros": indent([line for c in cols for line in write_entry(c, 0, c.zero)]),
    }


def hashed_source(key_words: int, layout: str, slices: tuple[tuple[int, ...], ...]) -> str:
    """The module's text. Entry words: key, values, then (next, previous) for each slice."""
    cols = columns(layout)
    words = key_words + width(layout)
    links = [words + 2 * j for j in range(len(slices))]
    scalar = key_words == 0
    values = {
        "title": f"Hashed store: {key_words} key words, values {layout!r}, slices {slices}.",
        "key_words": key_words,
        "layout": layout,
        "words": words,
        "header_words": (16 + width(layout)) if scalar else f"SLICES + {len(slices)}",
        "entry_words": max(words + 2 * len(slices), 1),
        **_kept(key_words, slices, links),
        **_valued(cols, layout, key_words),
    }
    text = (
        HEAD.substitute(values) + (SCALAR if scalar else STORE).substitute(values) + EXPORT.substitute(values)
    )
    text += "".join(KEY.substitute(number=i) for i in range(key_words))
    text += "".join(VALUE.substitute(number=c.number, read=read_entry(c, key_words)) for c in cols)
    for j, positions in enumerate(slices):
        slice_keys = names("k", len(positions))
        text += SLICE.substitute(number=j, keys=slice_keys, positions=positions, link=links[j])
    return text
