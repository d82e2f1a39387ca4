"""As a program: a server of Spark Connect with a user's session, and what views and sources give there."""

import json
import os
import sys
from pathlib import Path

from backtest_support import VIEWS

import orderbook.spark
from orderbook.spark import java


def main() -> None:
    records, folder = sys.argv[1:]
    os.environ |= {
        "JAVA_HOME": str(java.launcher(java.find_java(), Path(folder))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    from pyspark.sql import SparkSession

    own = SparkSession.builder.remote("local[2]").getOrCreate()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    before = {row.key: row.value for row in own.sql("SET").collect()}
    plain = {"run.backend": "interpreter"}
    depth = orderbook.spark.views(records, VIEWS, options=plain, partitions=2)["depth"]
    orderbook.spark.register(own)
    events = own.read.format("orderbook.events").load(records)
    again = orderbook.spark.views(events, VIEWS, options=plain, partitions=2, history=True)["everything"]
    said = {
        "depth": sorted(map(list, depth.collect())),
        "history": sorted([row.stamp, row.sequence, row.volume, row.orders] for row in again.collect()),
        "changed": {row.key: row.value for row in own.sql("SET").collect()} != before,
    }
    print(json.dumps(said, default=str))
    own.stop()


if __name__ == "__main__":
    main()
