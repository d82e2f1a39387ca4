"""Sources in a store: they give what the same files give here, and say in one line what a store does not."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
import zstandard
from backtest_support import SEEN, contents, job_settings, run, write_records
from command_line_support import Program
from command_line_support import orderbook as orderbook  # a fixture
from hypothesis import example, given
from hypothesis import strategies as st
from object_store import ObjectStore, object_store

from orderbook.backtesting.sources import run_instruments, source_specs
from orderbook.backtesting.time_cuts import spans_of
from orderbook.core.errors import SourceError, StoreError, UserError
from orderbook.feeds.byte_stream import Blocks
from orderbook.feeds.merge import read_slices
from orderbook.feeds.recording.parquet_record import RecordSource, RecordWriter
from orderbook.feeds.source_kinds import absolute, each_file, open_source
from orderbook.feeds.storage import files_at, place
from orderbook.jobs.folder import create_folder

CHANGE = b'{"stream":"s","op":"+","row":{}}\n'
MESSAGES = b"34200.5,1,7,100,2239500,1\n34201.5,1,8,100,2239400,1\n"
BOOKS = b"9999999999,0,2239500,100\n9999999999,0,2239500,100\n"
DAY = "AMZN_2012-06-21_message_1.csv"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """A store with a bucket `market`."""
    with object_store() as found:
        found.objects["market/there"] = b"1"
        yield found


def put(store: ObjectStore, folder: Path, at: str) -> None:
    """Every file below a folder, as an object whose key begins with `at`."""
    for path in folder.rglob("*"):
        if path.is_file():
            store.objects[f"{at}/{path.relative_to(folder)}"] = path.read_bytes()


def given_by(text: str) -> list[object]:
    return [batch.tolist() if isinstance(batch, np.ndarray) else batch for batch in open_source(text)]


def test_sources_give_what_the_files_give(store: ObjectStore, tmp_path: Path) -> None:
    write_records(tmp_path / "days", 300, 2, 2, 1, apart=False)
    files = {
        "rows.gz": gzip.compress(CHANGE * 3),
        "rows.zst": zstandard.compress(CHANGE),
        DAY: MESSAGES,
        DAY.replace("message", "orderbook"): BOOKS,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    put(store, tmp_path, "market/all")
    for name in ("rows.gz", "rows.zst", "days", "days/*.parquet", "days/day1.parquet", DAY):
        url = store.url(f"market/all/{name}")
        assert given_by(url) == given_by(f"{tmp_path}/{name}") != []
        assert open_source(url).progress in (0.0, 1.0)
    with_book = open_source(store.url(f"market/all/{DAY}"))
    assert sum(map(len, with_book)) and with_book.counts["resynchronisations"]


def test_a_glob_is_a_source_for_each_file(store: ObjectStore) -> None:
    first, second = (DAY.replace("21", day) for day in ("21", "22"))
    for name in (first, second, first.replace("message", "orderbook"), "day.itch"):
        store.objects[f"market/year/06/{name}"] = MESSAGES
    expected = [store.url(f"market/year/06/{name}") for name in (first, second)]
    assert each_file(store.url("market/year/*/AMZN_*.csv")) == expected
    assert each_file(store.url("market/year/**/AMZN_*.csv").replace("s3:", "lobster:s3a:")) == [
        f"lobster:{url}" for url in expected
    ]
    chosen = "symbols=A,B"
    assert each_file(f"itch:{store.url('market/year/06/*.itch')}&{chosen}") == [
        f"itch:{store.url('market/year/06/day.itch')}&{chosen}"
    ]
    assert each_file(f"itch:{store.url('market/year/06/day.itch')}&{chosen}")[0].endswith(chosen)
    assert absolute(expected[0]) == expected[0]
    store.objects["days/day.csv"] = MESSAGES
    for whole in ("days", "days/", "days/*", "days/**"):
        assert files_at(place(store.url(whole)), ["*"]) == [place(store.url("days/day.csv"))]


names = st.sampled_from(["a", "b.csv", "x1", ".h"])
keys = st.sets(st.lists(names, min_size=1, max_size=3).map("/".join), max_size=8)
parts = st.sampled_from(["a", "*", "**", "?", "[ab]*", "*1", ".*", "b.csv"])


@example(keys={".h/a", "a/.h/x1", "x1/a/b.csv"}, pattern="**/*")
@given(keys=keys, pattern=st.lists(parts, min_size=1, max_size=3).map("/".join))
def test_wildcards_name_what_they_name_here(store: ObjectStore, keys: set[str], pattern: str) -> None:
    # No name is a file's and a folder's.
    files = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    store.objects = {"market/there": b"1"} | {f"market/g/{key}": b"" for key in files}
    with TemporaryDirectory() as folder:
        for key in files:
            (Path(folder) / key).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / key).touch()
        found = set(glob(pattern, root_dir=folder, recursive=True))
    where = place(store.url(f"market/g/{pattern}"))
    given = {str(one).partition("?")[0].removeprefix("s3://market/g/") for one in files_at(where, ())}
    assert given & files == found & files


def test_a_long_listing_and_a_large_file_come_in_parts(store: ObjectStore) -> None:
    data = np.random.default_rng(1).bytes(2_500_000)
    store.objects |= {f"market/many/{number:04}": b"" for number in range(1_500)}
    store.objects["market/large"] = data
    assert len(files_at(place(store.url("market/many")), ["*"])) == 1_500
    blocks = Blocks(place(store.url("market/large")))
    store.requests.clear()
    assert b"".join(blocks) == data and blocks.progress == 1.0 and blocks.size == len(data)
    assert [method for method, _ in store.requests].count("GET") == 3


def test_backtest_of_a_store(store: ObjectStore, tmp_path: Path) -> None:
    write_records(tmp_path / "flow", 200, 2, 2, 3, apart=True)
    put(store, tmp_path / "flow", "market/flow")
    common: dict[str, Any] = {"sql": SEEN, "views": ("seen",)}
    here, _ = run(job_settings(tmp_path / "here", 2, **common), [tmp_path / "flow"])
    url = store.url("market/flow")
    store.requests.clear()
    settings = replace(job_settings(tmp_path, 2, **common), folder=store.url("market/jobs/one"))
    there, outcome = run(settings, [url])
    assert contents(there) == contents(here) and not outcome.errors
    options = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}", "AWS_ALLOW_HTTP": "true"}
    table = pl.read_delta("s3://market/jobs/one/views/seen", storage_options=options)
    own = pl.read_delta(str(tmp_path / "here" / "views" / "seen"))
    assert len(own) > 10 and table.sort(own.columns).equals(own.sort(own.columns))
    assert list(tmp_path.iterdir()) == [tmp_path / "flow", tmp_path / "here"]
    asked = [key for method, key in store.requests if method == "GET"]
    # Its footer by who lists the sources, opens it and reads it, and its one row group.
    assert asked.count("market/flow/AAA-USD-0.parquet") == 4
    specs = source_specs([url])
    assert [spec.rows for spec in specs] == [spec.rows for spec in source_specs([str(tmp_path / "flow")])]
    assert spans_of(specs) == spans_of(source_specs([str(tmp_path / "flow")]))
    assert source_specs([store.url("market/flow/*.parquet"), url.replace("s3:", "s3a:")]) == specs


def test_what_a_store_does_not_give_is_no_end_of_a_source(store: ObjectStore, tmp_path: Path) -> None:
    write_records(tmp_path, 400, 1, 1, 3, apart=True)
    whole = RecordSource([tmp_path / "AAA-USD-0.parquet"])
    with RecordWriter(tmp_path / "small.parquet", whole.instruments, 1) as writer:
        for part in np.array_split(np.concatenate(list(whole)), 4):
            writer.write(part)
    put(store, tmp_path, "market/lost")
    store.objects["market/lost/cut.csv"] = CHANGE * 100_000
    for name in ("small.parquet", "cut.csv"):
        specs = source_specs([store.url(f"market/lost/{name}")])
        slices = read_slices([(0, specs[0])], run_instruments(specs), [])
        next(slices)
        store.forbidden.add(f"market/lost/{name}")
        with pytest.raises(StoreError, match=rf"{name}.*: no permission"):
            for _ in slices:
                pass


def test_errors_name_the_url_and_say_what_to_do(
    store: ObjectStore, orderbook: Program, tmp_path: Path
) -> None:
    store.objects["market/secret.csv"] = CHANGE
    store.forbidden.add("market/secret.csv")
    for url, message in (
        (store.url("market/none.csv"), "no such file; check the bucket and the name"),
        (store.url("nobody/none.csv"), "no such file; check the bucket and the name"),
        (store.url("nobody/*.csv"), "no bucket or folder of that name"),
        (store.url("nobody/days/*.csv"), "no bucket or folder of that name"),
        (store.url("market/none/*.parquet"), "no record files there"),
        (store.url("market/secret.csv"), "no permission; the store's credentials"),
        (f"changes:{store.url('market/there')}&colour=blue", "no option is called 'colour'"),
        ("s3://market/a?region=x&scheme=ftp", "Invalid S3 connection scheme"),
        ("ftp://host/a", "no place that is read; give a path, or the URL of a file in s3://"),
        ("s3://key:secret@market/a", "s3://…@market: a password in a URL"),
    ):
        with pytest.raises(SourceError) as error:
            source_specs([url])
        told = str(error.value)
        assert message in told and "\n" not in told and "secret@" not in told
        assert "…" in told or re.split(r"/?[*?]", url.removeprefix("changes:"))[0] in told
    result = orderbook("backtest", store.url("market/secret.csv"), "--out", tmp_path / "job")
    assert result.status == 2 and len(result.error_lines) == 1 and "no permission" in result.error_lines[0]
    with pytest.raises(UserError, match="goes to a path, not a URL"):
        create_folder(Path("s3://market/job"))
    with pytest.raises(UserError, match="a job is written to a path, or to s3://"):
        create_folder(place("hdfs://host/job"))
    with pytest.raises(UserError, match="tls_verify_certificates cannot be said in the URL"):
        create_folder(place("s3://market/job?tls_verify_certificates=false"))


@pytest.mark.exhaustive
def test_a_store_that_does_not_answer() -> None:
    with pytest.raises(StoreError, match="the store cannot be reached"):
        open_source("s3://market/a?endpoint_override=127.0.0.1:1&scheme=http")


def test_what_is_written_never_goes_to_a_folder_that_is_named_like_a_url(
    orderbook: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = tmp_path / "flow.parquet"
    assert orderbook("generate", "--events", "50", "--out", flow).status == 0
    for arguments in (
        ("blocks", flow, "--view", "depth", "--out", "s3://market/blocks"),
        ("stream", tmp_path / "blocks", "--view", "depth", "--out", "s3://market/job"),
        ("replay", flow, "--view", "depth", "--out", "s3://market/depth.parquet"),
        ("generate", "--events", "50", "--out", "gs://market/flow.parquet"),
    ):
        result = orderbook(*arguments)
        assert result.status == 2, arguments
        assert "goes to a path, not a URL" in result.error_lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["flow.parquet"]
