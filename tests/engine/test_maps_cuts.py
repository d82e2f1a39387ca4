"""Cut searches against a walk over all entries."""

import hashlib
import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from maps_models import NO_JIT

from orderbook.core.generated_code import publish
from orderbook.engine.maps.cuts import cut_imports, cut_source
from orderbook.engine.maps.shapes import ordered

Sums = tuple[int, ...]
Case = tuple[str, int, str, Callable[[Sums, int], bool]]
DIRECTIONS = list(itertools.product((False, True), repeat=2))


def compile_cuts(
    prefix_words: int, layout: str, predicate: str, parameters: tuple[str, ...], fan_out: int
) -> dict[tuple[bool, bool], Callable[..., Any]]:
    """(descending, inclusive) -> function, generated as a trigger module would."""
    imports: list[str] = []
    bodies, names = [], {}
    for descending, inclusive in DIRECTIONS:
        name = names[descending, inclusive] = f"cut_{int(descending)}{int(inclusive)}"
        imports += cut_imports(name, prefix_words, layout, fan_out)
        bodies.append(
            cut_source(name, prefix_words, layout, descending, inclusive, predicate, parameters, fan_out)
        )
    text = "\n".join([*dict.fromkeys(imports), "\n", *bodies])
    module = publish("test_cut_" + hashlib.sha256(text.encode()).hexdigest()[:12], text)
    return {key: getattr(module, name) for key, name in names.items()}


def expected_cut(
    entries: Mapping[int, Sums], descending: bool, inclusive: bool, true_on: Callable[[Sums], bool]
) -> tuple[Any, ...] | None:
    """(found, key, sums) by walking: `true_on` takes the sums of one entry."""
    sums: Sums | None = None
    for key in sorted(entries, reverse=descending):
        values = entries[key]
        before = sums or tuple(0 for _ in values)
        after = tuple(a + b for a, b in zip(before, values, strict=True))
        if not true_on(after if inclusive else before):
            return (True, key, *before)
        sums = after
    return (False, 0, *sums) if sums else None


# layout, fan-out, predicate, its meaning; weights are non-negative in the columns it reads.
CASES: list[Case] = [
    ("ii", 16, "s1 <= limit", lambda s, limit: s[1] <= limit),
    ("di", 8, "s1 <= limit", lambda s, limit: s[1] <= limit),
    ("ii", 16, "4 * s0 < limit", lambda s, limit: 4 * s[0] < limit),
    ("wi", 8, "wide(limit) * 3 > s0 + s1", lambda s, limit: 3 * limit > s[0] + s[1]),
    ("Wd", 8, "s0 < limit", lambda s, limit: s[0] < limit),
    ("Ww", 16, "s1 <= limit", lambda s, limit: s[1] <= limit),
    ("id", 8, "s1 <= limit * 0.5 and s0 < 1000000", lambda s, limit: s[1] <= limit * 0.5),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_cuts_match_a_walk(case: Case) -> None:
    """128-bit columns have values of coarse steps first, then of finer ones, and at last of two words."""
    layout, fan_out, predicate, meaning = case
    shape = ordered(1, layout, fan_out)
    cuts = compile_cuts(1, layout, predicate, ("limit",), fan_out)
    H = shape.create()
    source = random.Random(3)
    model: dict[int, dict[int, Sums]] = {0: {}, 1: {}}
    steps = 150 if NO_JIT else 600
    for step in range(steps):
        prefix, key = source.randrange(2), source.randrange(-150, 150)
        entries = model[prefix]
        if step > 2 * steps // 3 and entries:
            key = source.choice(list(entries))
            values = tuple(-v for v in entries[key])
        else:
            unit = [10**12, 3 * 10**8, 1, 2**62][min(4 * step // steps, 3 if step % 50 == 0 else 2)]
            values = tuple(source.choice([0, 0, 1, 2, 7]) * (unit if k in "wW" else 1) for k in layout)
            if "d" in layout:
                values = tuple(0 if k == "d" else 1 for k in layout) if not values[0] else values
        shape.add(H, prefix, key, *(float(v) if k == "d" else v for v, k in zip(values, layout, strict=True)))
        entries[key] = tuple(a + b for a, b in zip(entries.get(key, (0,) * len(layout)), values, strict=True))
        if not any(v for v, k in zip(entries[key], layout, strict=True) if k != "d"):
            del entries[key]
        weight = min(sum(4 * v[0] + v[1] for v in entries.values()), 2**62)
        for limit in {
            -1,
            0,
            1,
            weight,
            weight + 1,
            source.randrange(weight + 2),
            source.randrange(weight + 2) // 4,
        }:
            for (descending, inclusive), cut in cuts.items():
                expected = expected_cut(entries, descending, inclusive, lambda s: meaning(s, limit))  # noqa: B023
                assert cut(H, prefix, limit) == (expected or (False, 0, *(0 for _ in layout)))
    shape.destroy(H)


def test_cut_ends_on_weights_of_any_sign() -> None:
    """The answer means nothing then, but the search ends inside the tree: a key that is there."""
    cuts = compile_cuts(0, "ii", "s0 < limit and limit != 3", ("limit",), 8)
    shape = ordered(0, "ii", 8)
    H = shape.create()
    source = random.Random(5)
    present = set()
    for key in range(100 if NO_JIT else 2_000):
        shape.add(H, key, source.randrange(-50, 50), 1)
        present.add(key)
        for cut in cuts.values():
            found, boundary, _, rows = cut(H, source.randrange(-60, 60))
            assert (boundary in present) if found else boundary == 0
            assert 0 <= rows <= len(present)
    shape.destroy(H)
