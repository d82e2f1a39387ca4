"""Job folders: what the manifest lists is what readers see, at any version, whatever else lies there."""

from decimal import Context, Decimal
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backtest_support import SEEN, contents, job_settings, run, write_records
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from samples import examples

import orderbook
from orderbook.core.errors import DataError, UserError
from orderbook.engine.distribution.message_versions import LOOK
from orderbook.engine.distribution.stage_runner import History
from orderbook.jobs.datasets import DataFile, Dataset, fills_dataset, history_of, orders_dataset, schema_of
from orderbook.jobs.folder import (
    FORMAT_VERSION,
    Manifest,
    ProgramText,
    create_folder,
    read_manifest,
    remove_unlisted,
    write_manifest,
)
from orderbook.jobs.job import Job, open_job
from orderbook.jobs.writers import DatasetWriter, HistoryTables

NO_STATISTICS = '{"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}'
PROGRAM = orderbook.compile("""
CREATE STREAM s (symbol TEXT, side INTEGER, volume DECIMAL(18, 2), at TIMESTAMP);
CREATE VIEW v AS SELECT symbol AS name, SUM(volume) AS gone, MAX(at) AS latest, AVG(volume) AS mean
FROM s GROUP BY symbol, side;
CREATE VIEW rows AS SELECT symbol, volume FROM s;
""")
KEYS = {view.name: [key.name for key in view.keys] for view in PROGRAM.views}


def dataset(view: str) -> Dataset:
    return history_of(PROGRAM.program.result(view), KEYS[view])


def manifest(**views: Dataset) -> Manifest:
    text = ProgramText((), {}, "")
    return Manifest(
        FORMAT_VERSION, "complete", "numba", "event", 1, (), text, views, orders_dataset(), fills_dataset()
    )


def test_columns_are_named_once() -> None:
    found = dataset("v")
    assert [field.name for field in found.fields] == [
        "stamp", "switch", "sequence", "name", "key.side", "v.gone", "latest", "mean", "gone", "multiplicity",
    ]  # fmt: skip
    assert schema_of(found).field("v.gone").type == pa.decimal128(38, 2)


def rows_of(names: list[str], counts: list[int]) -> History:
    """History rows of the view `rows`: one for each name at sequences 1, 2, …; count 0 is gone."""
    dictionary = PROGRAM.dictionary
    looks = np.zeros(len(names), LOOK)
    looks["stamp"], looks["sequence"] = 7, np.arange(1, len(names) + 1)
    result = PROGRAM.program.result("rows")
    code = {"symbol": dictionary.encode_all(names), "volume": np.full(len(names), 150)}
    keys = np.stack([code[key.name] for key in result.keys], axis=1)
    rows = np.zeros((len(names), 5), np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2] = counts, 1, dictionary.encode_all(names)
    rows[:, 3], rows[:, 4] = 1, 150
    return History("rows", looks, keys, rows)


def written(folder: Path, history: History) -> Job:
    create_folder(folder)
    tables = HistoryTables(PROGRAM.program.result("rows"), KEYS["rows"], PROGRAM.dictionary)
    writer = DatasetWriter(folder, tables.dataset)
    writer.write(tables.table(history))
    files = tuple(writer.close())
    write_manifest(folder, manifest(rows=msgspec.structs.replace(tables.dataset, files=files)))
    return open_job(folder)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
@examples(8)
def test_rows_at_every_version(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int]]
) -> None:
    job = written(tmp_path_factory.mktemp("job"), rows_of([n for n, _ in changes], [c for _, c in changes]))
    state: dict[str, int] = {}
    for place, (name, count) in enumerate(changes, 1):
        state[name] = count
        expected = sorted((n, Decimal("1.50")) for n, c in state.items() for _ in range(c))
        if place in (1, len(changes) // 2, len(changes)):
            assert job.view("rows", (7, 0, place)).rows() == expected
            found = job.lookup("rows", ("a", Decimal("1.5")), (7, 0, place))
            assert (found is not None) is bool(state.get("a"))
    expected = sorted((n, Decimal("1.50")) for n, c in state.items() for _ in range(c))
    assert job.view("rows").rows() == expected == job.sql("FROM rows ORDER BY ALL").rows()
    assert len(job.history("rows")) == len(changes) == job.sql("SELECT COUNT(*) FROM history.rows").item()


def test_files_that_no_manifest_lists_do_not_count(tmp_path: Path) -> None:
    job = written(tmp_path / "job", rows_of(["a", "b"], [1, 1]))
    stray = tmp_path / "job" / "views" / "rows" / "stray.parquet"
    stray.write_bytes((tmp_path / "job" / job.manifest.views["rows"].files[0].path).read_bytes())
    stray.with_name("half.parquet").write_bytes(b"PAR1 half")
    (tmp_path / "job" / ".job.json.12345678").write_text("{")
    assert len(open_job(tmp_path / "job").view("rows")) == 2
    remove_unlisted(tmp_path / "job", job.manifest)
    assert not stray.exists() and len(open_job(tmp_path / "job").view("rows")) == 2


def test_committed_and_tentative(tmp_path: Path) -> None:
    job = written(tmp_path / "job", rows_of(["a", "b", "c"], [1, 1, 1]))
    own = job.manifest.views["rows"]
    writer = DatasetWriter(tmp_path / "job", own, tentative=True)
    writer.write(pa.Table.from_pylist(job.history("rows").to_dicts(), schema_of(own)))
    early = msgspec.structs.replace(own, files=(), tentative=tuple(writer.close()))
    write_manifest(tmp_path / "job", msgspec.structs.replace(job.manifest, views={"rows": early}))
    going = open_job(tmp_path / "job")
    assert not len(going.view("rows")) and len(going.view("rows", tentative=True)) == 3
    until = msgspec.structs.replace(job.manifest, committed=(7, 0, 2))
    write_manifest(tmp_path / "job", until)
    assert open_job(tmp_path / "job").view("rows")["symbol"].to_list() == ["a", "b"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not a job"):
        create_folder(tmp_path)
    with pytest.raises(UserError, match="no job there"):
        open_job(tmp_path)
    (tmp_path / "job.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="format 99"):
        read_manifest(tmp_path)
    (tmp_path / "job.json").write_text("[")
    with pytest.raises(UserError, match="not a manifest"):
        read_manifest(tmp_path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    job = written(tmp_path / "job", rows_of(["a"], [1]))
    with pytest.raises(UserError, match="did you mean"):
        job.view("row")
    with pytest.raises(UserError, match="keys are symbol, volume"):
        job.lookup("rows", ("a",))
    with pytest.raises(UserError, match="query: "):
        job.sql("SELECT nothing FROM rows")
    (tmp_path / "job" / job.manifest.views["rows"].files[0].path).unlink()
    with pytest.raises(DataError, match="damaged or gone"):
        job.view("rows")


def test_a_file_that_comes_late_changes_what_it_is_about_in_one_commit(tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 200, 2, 2, 3, apart=True)
    late = max((tmp_path / "flow").glob("*-0.parquet"))
    late.rename(tmp_path / late.name)
    settings = job_settings(tmp_path / "job", 2, sql=SEEN, views=("seen",))
    before = run(settings, [tmp_path / "flow"])[0]
    (tmp_path / late.name).rename(late)
    whole = run(job_settings(tmp_path / "whole", 2, sql=SEEN, views=("seen",)), [tmp_path / "flow"])[0]
    there = pl.read_delta(str(tmp_path / "job" / "views" / "seen"))
    after = run(settings, [tmp_path / "flow"])[0]
    assert contents(after) == contents(whole) != contents(before)
    old, new = (job.manifest.views["seen"] for job in (before, after))
    assert new.version == old.version + 1
    removed, added = ({file.path for file in one.files} for one in (old, new))
    assert removed & added and added - removed
    # Files that are gone, and new ones, have rows of the late file's symbol alone.
    for path in removed ^ added:
        assert set(pl.read_parquet(tmp_path / "job" / path)["symbol"]) == {late.stem.removesuffix("-0")}
    # Who has begun to read the version before can end it.
    assert DeltaTable(tmp_path / "job" / "views" / "seen", version=old.version).count() == len(there)
    assert run(settings, [tmp_path / "flow"])[0].manifest.views["seen"].version == new.version


def test_numbers_of_128_bits_are_exact_and_more_are_refused() -> None:
    program = orderbook.compile(
        "CREATE STREAM s (g INTEGER, x DECIMAL(18, 8)); "
        "CREATE VIEW v AS SELECT g, SUM(x * x) AS total FROM s GROUP BY g;"
    )
    tables = HistoryTables(program.program.result("v"), ["g"], program.dictionary)
    value = -(10**30) - 7
    rows = np.array([[1, 1, 5, 1, value & (2**64 - 1), value >> 64]], object)
    row = np.array([[int(w) - 2**64 if int(w) >= 2**63 else int(w) for w in rows[0]]], np.int64)
    table = tables.table(History("v", np.zeros(1, LOOK), np.array([[5]]), row))
    assert table["total"][0].as_py() == Decimal(value).scaleb(-16, Context(prec=40))
    row[0, 5] = 2**62
    row[0, 5] += 2**61
    with pytest.raises(DataError, match="38 digits"):
        tables.table(History("v", np.zeros(1, LOOK), np.array([[5]]), row))


def test_manifest_survives_a_round_trip(tmp_path: Path) -> None:
    own = msgspec.structs.replace(dataset("rows"), files=(DataFile("views/rows/x", 3, 7, NO_STATISTICS),))
    written = write_manifest(tmp_path, manifest(rows=own))
    found = read_manifest(tmp_path)
    assert found.views["rows"].files == (DataFile("views/rows/x", 3, 7),)
    plain = [one.with_datasets(lambda d: msgspec.structs.replace(d, files=())) for one in (written, found)]
    assert plain[0] == plain[1] and written.views["rows"].version == 0


def test_files_are_read_by_others_as_they_were_written(tmp_path: Path) -> None:
    random, count = np.random.default_rng(1), 3_000
    ints = random.integers(-(2**63), 2**63 - 1, (4, count))
    there = random.random(count) < 0.7
    made = pa.table(
        {
            "stamp": ints[0],
            "switch": np.arange(count) % 3,
            "sequence": ints[1],
            "name": pa.array([f"é{i % 7}" for i in range(count)], mask=~there),
            "key.side": pa.array(ints[2], mask=there),
            "v.gone": pa.array(
                [Decimal(i).scaleb(-2) for i in range(count)], pa.decimal128(38, 2), mask=~there
            ),
            "latest": pa.array(ints[3] // 4, pa.timestamp("ns", "UTC"), mask=there),
            "mean": pa.array(random.normal(size=count), mask=~there),
            "gone": ~there,
            "multiplicity": pa.array(np.ones(count, np.int64), mask=~there),
        }
    )
    own = dataset("v")
    made = made.cast(schema_of(own))
    files: list[DataFile] = []
    for start in range(0, count, 1_000):
        writer = DatasetWriter(tmp_path, own)
        writer.write(made.slice(start, 400))
        writer.write(made.slice(start + 400, 600))
        files += writer.close()
    write_manifest(tmp_path, manifest(v=msgspec.structs.replace(own, files=tuple(files))))
    wanted = pl.DataFrame(pl.from_arrow(made)).sort("stamp")
    assert (
        Job(tmp_path, read_manifest(tmp_path))
        .history("v")
        .sort("stamp")
        .equals(wanted.with_columns(pl.col("latest").dt.replace_time_zone(None)))
    )
    place = tmp_path / "views" / "v"
    by_delta = pl.read_delta(str(place)).sort("stamp")
    whole = by_delta.with_columns(latest=pl.col("latest_ns").cast(pl.Datetime("ns", "UTC")))
    assert whole.drop("latest_ns").equals(wanted)
    assert by_delta["latest"].equals(wanted["latest"].dt.truncate("1us").cast(pl.Datetime("us", "UTC")))
    table = DeltaTable(place)
    rows = table.to_pyarrow_dataset()
    found = duckdb.from_arrow(rows).filter("name IS NOT NULL AND stamp > 0").count("*").fetchall()
    assert found == [(wanted.filter(pl.col("name").is_not_null() & (pl.col("stamp") > 0)).height,)]
    assert len(table.to_pandas()) == count
    # What the log says of the columns lets a reader leave files out: it must be true.
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        own_rows = parquet.read_table(place / action["path"])
        for name in own_rows.column_names:
            column = own_rows[name]
            assert action[f"null_count.{name}"] == column.null_count
            if action.get(f"min.{name}") is not None:
                low, high = (pc.min_max(column)[end].as_py() for end in ("min", "max"))
                assert (action[f"min.{name}"], action[f"max.{name}"]) == (low, high)
        assert action["min.stamp"] is not None and action["min.name"] is not None
