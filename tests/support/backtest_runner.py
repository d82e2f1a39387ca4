"""A backtest on Spark in a process of its own: sources, the job's folder, the master, partitions."""

import sys
from pathlib import Path

from backtest_acceptance import WIDE, settings_for

from orderbook.backtesting.run import backtest
from orderbook.backtesting.sources import source_specs
from orderbook.configuration.options import SparkOptions
from orderbook.spark.batch import SparkExecutor

if __name__ == "__main__":
    data, out, master, partitions = sys.argv[1:]
    settings = settings_for(WIDE, Path(out), int(partitions), "interval:1000000000")
    executor = SparkExecutor(SparkOptions(master=master, memory="1 GB"))
    backtest(settings, source_specs([data]), executor, "spark")
