"""Map shapes: a generated module of jitted functions for each kind, key and value layout.

The functions take and return int64 addresses, int64 keys, and values as int64, Int128 or float64 by the
layout (see store_layout.py). They compile when first called and stay on disk, see core/generated_code.py.
"""

from functools import cache
from types import ModuleType

from orderbook.core.generated_code import publish_text
from orderbook.engine.maps.dense import Domain, dense_source
from orderbook.engine.maps.hashed import hashed_source
from orderbook.engine.maps.ordered import FAN_OUT, ordered_source


@cache
def hashed(key_words: int, layout: str, slices: tuple[tuple[int, ...], ...] = ()) -> ModuleType:
    """A map from `key_words` int64 words to values, with lookups by the key positions of each slice.

    create() -> H; destroy(H); clear(H); find(H, k0..) -> entry or 0; add(H, k0.., d0..) -> entry or 0;
    assign(H, k0.., v0..) -> entry or 0; get(H, k0..) -> values; key_i(entry); value_j(entry); size(H);
    memory_bytes(H); error(H); first(H), next_entry(H, entry); slice_j_first(H, k0..),
    slice_j_next(entry); export(H, address of int64[rows, WORDS], rows). Entries whose exact values are
    all zero are not there. Raises ValueError for a layout or slice that makes no sense.
    """
    if key_words < 0 or any(not s or not set(s) <= set(range(key_words)) for s in slices):
        raise ValueError(f"slices {slices} do not fit {key_words} key words")
    return publish_text("hashed", hashed_source(key_words, layout, slices))


@cache
def ordered(prefix_words: int, layout: str, fan_out: int = FAN_OUT, summed: bool = True) -> ModuleType:
    """A map from `prefix_words` int64 words and one ordered int64 key to values, with partial sums.

    create() -> H; destroy(H); clear(H); add(H, p0.., key, d0..); assign(H, p0.., key, v0..);
    get(H, p0.., key) -> values; total(H, p0..) -> sums; range_sum(H, p0.., low, high) -> sums over
    low <= key <= high; around(H, p0.., key) -> sums below, at and above (exact layouts only), after which
    `add` at that key does not search again; lowest(H, p0..), highest(H, p0..), at_or_above(H, p0.., key),
    at_or_below(H, p0.., key) -> (found, key); range_first(H, p0.., low), range_next(leaf, position),
    range_last(H, p0.., high), range_previous(leaf, position) -> cursor (leaf, position), leaf 0 at the
    end; key_at(leaf, position), value_j_at(leaf, position); prefix_first(H), prefix_next(H, tree) ->
    tree or 0, prefix_i(tree); size(H); memory_bytes(H); error(H);
    export(H, address of int64[rows, WORDS], rows). Entries whose exact values are all zero are not there. Not
    `summed` it has no total, range_sum and around. Raises ValueError for a bad layout, which is of `i` alone
    where it is not summed.
    """
    if prefix_words < 0 or fan_out < 8 or fan_out & (fan_out - 1):
        raise ValueError(f"{prefix_words} prefix words, fan-out {fan_out}: want >= 0 and a power of two >= 8")
    if not summed and set(layout) != {"i"}:
        raise ValueError(f"layout {layout!r}: want letters 'i' alone where no sums are kept")
    return publish_text("ordered", ordered_source(prefix_words, layout, fan_out, summed))


@cache
def dense(prefix_words: int, layout: str, domain: Domain, cursors: int = 0) -> ModuleType:
    """A map from `prefix_words` int64 words and one key of a small domain to exact values that fit.

    create() -> H; destroy(H); clear(H); add(H, p0.., key, d0..); assign(H, p0.., key, v0..);
    get(H, p0.., key) -> values; total(H, p0..) -> sums; size(H); memory_bytes(H); error(H);
    export(H, address of int64[rows, WORDS], rows). Cuts are found from `cursors`, see
    `dense_cut_source`. Keys outside the domain write outside the store. Entries whose values are all zero
    are not there. Raises ValueError for a layout with other columns than `i` and `w`.
    """
    if prefix_words < 0 or not layout or set(layout) - set("iw") or domain.size < 1 or cursors < 0:
        raise ValueError(f"{prefix_words} prefix words, layout {layout!r}, {domain}: no dense store")
    return publish_text("dense", dense_source(prefix_words, layout, domain, cursors))
