"""As a program: views, sources, streams, strategies and jobs in a session that was told of no Python."""

import json
import os
import sys
from pathlib import Path

from backtest_support import SEEN, VIEWS, Follower, job_settings

import orderbook.spark
from orderbook.backtesting.run import backtest
from orderbook.backtesting.sources import source_specs
from orderbook.configuration.options import SparkOptions
from orderbook.core.errors import UserError
from orderbook.jobs.job import open_job
from orderbook.spark import java
from orderbook.spark.batch import SparkExecutor

PLAIN = {"run.backend": "interpreter"}


def main() -> None:
    records, folder, other = sys.argv[1:]
    home = str(java.launcher(java.find_java(), Path(folder)))
    os.environ |= {"JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    own = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    depth = orderbook.spark.views(records, VIEWS, options=PLAIN, partitions=2)["depth"]
    plain = Path(folder, "plain.toml")
    plain.write_text('[run]\nbackend = "interpreter"\n[views]\npaths = ["seen.sql"]\n')
    Path(folder, "seen.sql").write_text(SEEN)
    fills = orderbook.spark.strategies(records, Follower, config=plain, partitions=2)["fills"]
    orderbook.spark.register(own)
    options = {"sql": VIEWS, "view": "depth", "config": str(plain)}
    source = own.read.format("orderbook").options(**options).load(records)
    changes = own.readStream.format("orderbook.changes").options(**options).load(records).writeStream
    changes = changes.format("parquet").option("checkpointLocation", f"{folder}/at")
    changes.trigger(availableNow=True).start(f"{folder}/changes").awaitTermination()
    settings = job_settings(Path(folder, "job"), 2, views=("depth",))
    backtest(settings, source_specs([records]), SparkExecutor(SparkOptions(master="local[2]")), "spark")
    job = open_job(settings.folder)
    said = {
        "views": sorted(map(list, depth.collect())),
        "source": sorted(map(list, source.collect())),
        "job": sorted(map(list, job.view("depth").rows())),
        "fills": fills.count(),
        "changes": own.read.parquet(f"{folder}/changes").count(),
        "python": own.sparkContext.pythonExec,
    }
    own.sparkContext.pythonExec = other
    try:
        orderbook.spark.views(records, VIEWS, options=PLAIN, partitions=2)
    except UserError as error:
        said["refused"] = str(error)
    print(json.dumps(said, default=str))
    own.stop()


if __name__ == "__main__":
    main()
