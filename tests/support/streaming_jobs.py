"""A stream on Spark as a program of its own, which ends itself or a part of Spark where it is told to.

    python tests/support/streaming_jobs.py JOB LOGS PLACE BATCH PARTITIONS COMPUTE CHAIN MASTER

PLACE: "before", "inside" or "after" the sink of batch BATCH the driver is killed; "executor": one is, in the
batch after it; "none".
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

from spark_jobs import family
from streaming_support import settings

from orderbook.configuration.options import SparkOptions
from orderbook.spark import streaming
from orderbook.spark.session import spark_session
from orderbook.spark.workers import ship
from orderbook.streaming import job as sink
from orderbook.streaming.shuffle import ShuffleRow


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kills one executor of this process's Spark, in the middle of what it does."""
    time.sleep(0.5)
    for process in sorted(family(os.getpid())):
        try:
            command = Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in command and "org.apache.spark" in command:
            os.kill(process, signal.SIGKILL)
            print("killed an executor", flush=True)
            return


class DyingSink(sink.StreamSink):
    """Ends its process at a place of a batch."""

    place, batch = "none", 0

    def take(self, batch: int, outputs: Iterable[ShuffleRow]) -> bool:
        mine = batch == self.batch
        if mine and self.place == "before":
            die()
        if mine and self.place == "inside":
            # The files of the batch are there, the manifest is not.
            patch.object(sink, "write_manifest", lambda *_: die()).start()
        taken = super().take(batch, outputs)
        print(f"batch {batch} {taken}", flush=True)
        if mine and self.place == "after":
            die()
        if mine and self.place == "executor":
            threading.Thread(target=kill_executor).start()
        return taken


def main() -> None:
    job, logs, place, batch, partitions, compute, chain, master = sys.argv[1:]
    DyingSink.place, DyingSink.batch = place, int(batch)
    patch.object(streaming, "StreamSink", DyingSink).start()
    sent = master.startswith("local-cluster")
    # Executors as machines of their own, which do not have the project.
    properties = {"spark.executorEnv.PYTHONPATH": ""} if sent else {}
    session = spark_session(SparkOptions(master=master, memory="1 GB", properties=properties))
    if sent:
        ship(session, ["streaming_support"])
    own = settings(Path(job), int(partitions), compute)
    streaming.run_job(session, own, [logs], once=True, chain=int(chain), files=1)


if __name__ == "__main__":
    main()
