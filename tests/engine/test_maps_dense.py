"""Dense stores and their cursors against a dictionary and a walk over it."""

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from maps_models import NO_JIT
from store_rows import rows

from orderbook.core.generated_code import publish
from orderbook.engine.maps.dense import Domain, block_words, dense_cut_imports, dense_cut_source
from orderbook.engine.maps.shapes import dense

# Layout, domain, words of the prefix, and the column that is cut by.
CASES = [
    ("ii", Domain(-7, 5), 0, 1),
    ("ii", Domain(-7, 5), 1, 0),
    ("ii", Domain(-100, 700, descending=True), 1, 1),
    ("ii", Domain(-100, 700, descending=True), 0, 0),
    ("wi", Domain(0, 300), 0, 0),
    ("wi", Domain(0, 300), 1, 1),
    ("iw", Domain(10, 4200, descending=True), 1, 0),
    ("iw", Domain(10, 4200, descending=True), 0, 1),
]


def compile_cuts(
    prefix_words: int, layout: str, domain: Domain, column: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The exclusive and the inclusive cut, each with a cursor of its own."""
    imports: list[str] = []
    bodies = []
    for inclusive in (False, True):
        options = (prefix_words, layout, domain, 2)
        imports += dense_cut_imports(f"cut_{int(inclusive)}", *options)
        bodies.append(dense_cut_source(f"cut_{int(inclusive)}", *options, int(inclusive), column, inclusive))
    text = "\n".join([*dict.fromkeys(imports), "\n", *bodies])
    module = publish("test_dense_" + hashlib.sha256(text.encode()).hexdigest()[:12], text)
    return module.cut_0, module.cut_1


def expected_run(
    entries: Mapping[int, tuple[int, ...]], domain: Domain, column: int, inclusive: bool, limit: int
) -> tuple[int, ...]:
    """The sums over the run, walking the entries in the domain's order."""
    sums: tuple[int, ...] = (0, 0)
    for key in sorted(entries, reverse=domain.descending):
        after = tuple(a + b for a, b in zip(sums, entries[key], strict=True))
        if (after if inclusive else sums)[column] > limit:
            break
        sums = after
    return sums


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("layout", "domain", "prefix_words", "column"), CASES, ids=str)
def test_a_dense_store_is_a_dictionary_and_its_cuts_are_walks(
    layout: str, domain: Domain, prefix_words: int, column: int
) -> None:
    shape = dense(prefix_words, layout, domain, 2)
    cuts = compile_cuts(prefix_words, layout, domain, column)
    H = shape.create()
    source = random.Random(f"{layout} {domain} {prefix_words}")
    model: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
    for step in range(120 if NO_JIT else 1_000):
        prefix = (source.randrange(2),) * prefix_words
        entries = model.setdefault(prefix, {})
        if entries and source.random() < (0.9 if step % 400 > 300 else 0.4):
            key = source.choice(list(entries))
            change: tuple[int, ...] = tuple(-v for v in entries[key]) if source.random() < 0.7 else (0, 1)
        else:
            key = domain.low + min(int(source.expovariate(3 / domain.size)), domain.size - 1)
            change = (source.choice((0, 1, 5)), source.choice((1, 2, 9)))
        shape.add(H, *prefix, key, *change)
        entries[key] = tuple(a + b for a, b in zip(entries.get(key, (0, 0)), change, strict=True))
        if not any(entries[key]):
            del entries[key]
        total = tuple(sum(v[i] for v in entries.values()) for i in (0, 1))
        assert shape.total(H, *prefix) == total
        assert shape.get(H, *prefix, key) == entries.get(key, (0, 0))
        for limit in (total[column] // 4, source.randrange(total[column] + 2), -1):
            for inclusive, cut in enumerate(cuts):
                found, boundary, *sums = cut(H, *prefix, limit)
                assert tuple(sums) == expected_run(entries, domain, column, bool(inclusive), limit)
                inside = [k for k in entries if (k > boundary if domain.descending else k < boundary)]
                if entries:
                    run = inside if found else list(entries)
                    assert tuple(sums) == tuple(sum(entries[k][i] for k in run) for i in (0, 1))
    assert shape.size(H) == sum(map(len, model.values()))
    held = {(*prefix, key): v for prefix, entries in model.items() for key, v in entries.items()}
    assert rows(shape, H) == held
    for prefix, entries in model.items():
        for key, values in entries.items():
            shape.add(H, *prefix, key, *(-v for v in values))
    assert shape.size(H) == 0
    assert not any(shape.record(H, *prefix) for prefix in model), "cells of an empty prefix are given back"
    shape.destroy(H)


def test_assigned_and_cleared_cells() -> None:
    domain = Domain(0, 40)
    shape = dense(1, "ii", domain, 1)
    H = shape.create()
    shape.assign(H, 3, 7, 5, 1)
    shape.assign(H, 3, 7, 2, 4)
    shape.assign(H, 4, 39, 1, 1)
    assert rows(shape, H) == {(3, 7): (2, 4), (4, 39): (1, 1)}
    shape.assign(H, 4, 39, 0, 0)
    assert rows(shape, H) == {(3, 7): (2, 4)}
    shape.clear(H)
    assert shape.size(H) == 0 and rows(shape, H) == {} and shape.total(H, 3) == (0, 0)
    shape.add(H, 3, 0, 1, 1)
    assert shape.total(H, 3) == (1, 1)
    shape.destroy(H)


def test_one_block_of_prefixes_that_are_empty_is_kept() -> None:
    domain = Domain(0, 4000)
    shape, block = dense(1, "ii", domain, 1), 8 * block_words("ii", domain, 1)
    H = shape.create()
    for prefix in (3, 4, 5):
        shape.add(H, prefix, 7, 5, 1)
    for prefix in (3, 4, 5):
        shape.add(H, prefix, 7, -5, -1)
    assert block <= shape.memory_bytes(H) < 2 * block
    shape.add(H, 6, 3999, 2, 2)
    assert block <= shape.memory_bytes(H) < 2 * block
    assert rows(shape, H) == {(6, 3999): (2, 2)} and shape.total(H, 6) == (2, 2)
    shape.add(H, 6, 3999, -2, -2)
    shape.clear(H)
    assert shape.memory_bytes(H) < block
    shape.destroy(H)


def test_shapes_that_cannot_be_dense_are_refused() -> None:
    for layout in ("d", "W", "", "id"):
        with pytest.raises(ValueError, match="no dense store"):
            dense(0, layout, Domain(0, 10))
