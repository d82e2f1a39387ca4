"""Flips one sign, comparison or NULL word at a time in generated text: do views still come out right?

A script for NUMBA_DISABLE_JIT=1, when generated modules are plain Python:

    python tests/support/mutation_runner.py --seed 0 --tries 12 [--every N] [--part 0/2]

Mutants are grouped by the emitter whose text they change and by what is flipped. Of each group it tries
mutants, of other views and places, until one is found out; it prints groups of which none was. With --part
k/n it tries every n-th group, from the k-th on. With --every N it tries N mutants of each group, and prints
how many of these were found out. Views are NAMED, or with --views N so many chosen by the seed.
"""

import argparse
import gc
import os
import random
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from unittest.mock import patch

from generated_runner import History, check, interpreted
from views_catalogue import CATALOGUE, Entry

from orderbook.core.generated_code import publish_text
from orderbook.engine.maps import scales
from orderbook.engine.runtime import numba_runtime

FLIPS = {
    "<": (" < ", " <= "),
    "<=": (" <= ", " < "),
    ">": (" > ", " >= "),
    ">=": (" >= ", " > "),
    "==": (" == ", " != "),
    "!=": (" != ", " == "),
    "+": (" + ", " - "),
    "-": (" - ", " + "),
    "sign": ("(-", "("),
    "NULL": ("-9223372036854775808", "-9223372036854775806"),
}
# Views in whose texts every emitter writes whatever it ever flips, mostly in four of them and more.
NAMED = (
    "cases",
    "dense_vwap",
    "dense_vwap_and_best",
    "dense_vwap_by_symbol",
    "dense_vwap_upwards",
    "derived_total",
    "distinct_count_over_one_row",
    "double_and_integer",
    "doubles_cast_to_whole_decimals",
    "exists_or_else",
    "first_rows_by_nullable",
    "first_rows_ties",
    "first_value_of_all",
    "grouping_sets_by_text",
    "having",
    "having_hidden",
    "having_total",
    "implied_strict",
    "lists_and_ranges",
    "loose_band",
    "medians_of_numbers_of_rows",
    "mixed_logic",
    "moments_of_doubles",
    "no_from_filtered",
    "null_all",
    "null_first_rows",
    "null_vwap_by_decimal",
    "null_vwap_by_double",
    "null_vwap_worst_of_all",
    "null_vwap_of_the_worst",
    "null_vwap_of_volume",
    "null_vwap_upwards",
    "plain_condition",
    "quantiles_below_nulls",
    "quantiles_by_grouping_sets",
    "quantiles_of_all",
    "quantiles_of_conditions",
    "quantiles_of_nothing",
    "roots",
    "sources_of_one_name_in_two_views",
    "top_scalar",
    "union_all_computed",
    "union_of_sums",
    "union_of_three",
    "vwap_average",
)
# How many rows are listed at a time: as many as there are room for.
UNSEEN = ("rows",)
SECONDS = 20
LENGTH = 40


@dataclass(frozen=True, slots=True)
class Mutant:
    """One flip: in a module of a kind, `count` characters from `at` on become `text`."""

    entry: Entry
    kind: str
    at: int
    count: int
    text: str


def mutants(entry: Entry) -> Iterator[tuple[tuple[str, str], Mutant]]:
    """The flips of an entry's generated modules, with their groups: emitter and what is flipped."""
    texts: dict[str, str] = {}

    def noted(kind: str, text: str) -> ModuleType:
        texts.setdefault(kind, text)
        return publish_text(kind, text)

    with patch.object(numba_runtime, "publish_text", noted):
        check(entry, 0, 2)
    yield from _flips(entry, "program", texts["program"])


def _flips(entry: Entry, kind: str, text: str) -> Iterator[tuple[tuple[str, str], Mutant]]:
    for function in re.finditer(r"^def (\w+)\(.*?(?=^@|^def |\Z)", text, re.MULTILINE | re.DOTALL):
        name = re.sub(r"_?r?\d+", "", function[1])
        emitter = "trigger" if name in ("insert", "delete", "part", "put_n", "again") else name
        body = re.sub(r'""".*?"""|#.*', lambda m: " " * len(m[0]), function[0], flags=re.DOTALL)
        for flip, (old, new) in FLIPS.items():
            for place in re.finditer(re.escape(old), body):
                at = function.start() + place.start()
                yield (emitter, flip), Mutant(entry, kind, at, len(old), new)


def found_out(mutant: Mutant, seeds: int = 3) -> bool:
    """Whether a check of the mutant's view fails; in a process of its own, which may crash or not end."""
    for seed in range(seeds):
        # Mostly the first is enough.
        history = _history(mutant.entry.name, seed)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(SECONDS)
            os._exit(_checked(mutant, seed, history))
        if os.waitpid(child, 0)[1] != 0:
            return True
    return False


@cache
def _history(name: str, seed: int) -> History:
    """Once for all mutants of an entry."""
    return interpreted(next(entry for entry in CATALOGUE if entry.name == name), seed, LENGTH)


def _checked(mutant: Mutant, seed: int, history: History) -> int:
    def mutated(kind: str, text: str) -> ModuleType:
        if kind == mutant.kind:
            text = text[: mutant.at] + mutant.text + text[mutant.at + mutant.count :]
        return publish_text(kind, text)

    # The code of the last programs is known, and would be taken as it is.
    with patch.object(numba_runtime, "publish_text", mutated), patch.object(numba_runtime, "_codes", []):
        try:
            # In every second check no sum fits one word.
            with patch.object(scales, "LIMIT", 1 if seed % 2 else scales.LIMIT):
                check(mutant.entry, seed, LENGTH, history=history)
        except Exception:
            return 1
    return 0


def grouped(seed: int, views: int) -> dict[tuple[str, str], list[Mutant]]:
    """Mutants of views, NAMED or so many chosen by the seed, in an order by it, by their groups."""
    generator = random.Random(seed)
    entries = [entry for entry in CATALOGUE if entry.name in NAMED]
    if views:
        entries = generator.sample(CATALOGUE, min(views, len(CATALOGUE)))
    groups: defaultdict[tuple[str, str], list[Mutant]] = defaultdict(list)
    for entry in entries:
        for group, mutant in mutants(entry):
            if group[0] not in UNSEEN:
                groups[group].append(mutant)
    for own in groups.values():
        generator.shuffle(own)
    return groups


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--views", type=int, default=0)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="every n-th group, from the k-th on, as k/n")
    options = parser.parse_args()
    lost = tried = 0
    groups = grouped(options.seed, options.views)
    # Else each process looks through what all of them share.
    gc.freeze()
    first, parts = map(int, options.part.split("/"))
    for group, own in sorted(groups.items())[first::parts]:
        if options.every:
            found = [found_out(m) for m in own[: options.every]]
            tried += len(found)
            print(f"{' '.join(group)}: {sum(found)} of {len(found)} found out")
            lost += not any(found)
            continue
        for mutant in own[: options.tries]:
            tried += 1
            if found_out(mutant):
                break
        else:
            lost += 1
            names = ", ".join(dict.fromkeys(m.entry.name for m in own[: options.tries]))
            print(f"not found out: {' '.join(group)} in {names}", file=sys.stderr)
    gc.unfreeze()
    print(f"{len(groups)} groups, {lost} not found out, {tried} mutants tried")
    return lost != 0


if __name__ == "__main__":
    sys.exit(main())
