"""CPU seconds of compiling one query of TPC-H, in a process of its own: `… -m benchmarks.tpch_compile q3`.

`library` in place of a query compiles what programs share into the cache folder; `--unlimited` leaves LIMIT
out.
"""

import json
import re
import resource
import sys
from itertools import pairwise

import orderbook

from .programs import compile_sql, runtime_of
from .tpch_data import texts, view


def _spent() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main(name: str, *options: str) -> None:
    if name == "library":
        first = (
            "SELECT c_custkey, SUM(c_acctbal) AS s FROM customer GROUP BY c_custkey ORDER BY s DESC LIMIT 3"
        )
        runtime_of(orderbook.compile(f"{texts()['schema']} CREATE VIEW first AS {first}"))
        return
    sql = view(name)
    if "--unlimited" in options:
        sql = re.sub(r"\nLIMIT \d+$", "", sql)
    times = [_spent()]
    program = compile_sql(sql)
    times.append(_spent())
    runtime_of(program)
    times.append(_spent())
    print(json.dumps([after - before for before, after in pairwise(times)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
