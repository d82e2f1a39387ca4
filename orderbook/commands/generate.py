"""`orderbook generate`: a synthetic order flow as a Parquet record."""

from pathlib import Path

from feeds.parquet_record import RecordWriter
from orderbook.display import progress_bar
from orderbook.errors import UserError
from orderbook.generate import generate as generated
from orderbook.generate import synthetic_instruments


def generate(out: Path, events: int, symbols: int, levels: int, seed: int, imbalance: float) -> None:
    """Write `events` market events to `out`. Raises UserError for arguments out of range."""
    if out.suffix != ".parquet":
        raise UserError(f"--out {out}: a record is Parquet, its name must end in .parquet")
    batches = generated(events, symbols, levels, seed, imbalance=imbalance)
    done = 0
    with progress_bar("generating") as bar, RecordWriter(out, synthetic_instruments(symbols)) as writer:
        for batch in batches:
            writer.write(batch)
            done += len(batch)
            bar(done / events, f"{done:,} events")
    print(f"{out}: {done:,} events of {symbols:,} symbols, {out.stat().st_size:,} bytes")
