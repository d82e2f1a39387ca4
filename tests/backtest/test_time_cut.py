"""History cut in time: the rows of an uncut run, whatever is cut and wherever."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backtest_acceptance import CHAIN, CHAINED, write_sectors
from backtest_support import ForgetfulExecutor, contents, job_settings, run, write_records
from block_distribution import blocks_of, coded, histories
from fuzz import changes, program_of, streams
from hypothesis import given
from hypothesis import strategies as st
from samples import USUAL, examples
from views_catalogue import CATALOGUE, Entry

from benchmarks.spark_data import write_days
from orderbook.backtesting import time_cuts
from orderbook.backtesting.plan import layout_of
from orderbook.backtesting.sources import source_specs
from orderbook.backtesting.tasks import Cuts, JobSettings
from orderbook.backtesting.time_cuts import Sample, Span, depends_on_order, quantiles, spans_of, with_cuts
from orderbook.commands.backtest import parsed_cut_time
from orderbook.core.changes import Dictionary
from orderbook.core.errors import UserError
from orderbook.engine.distribution.distribute import distribute
from orderbook.engine.distribution.stages import Phase
from orderbook.engine.plan.planner import plan
from orderbook.jobs.job import Job

SAMPLE = random.Random(7).sample(CATALOGUE, 20)


def check_entry(entry: Entry, steps: int, materialize: str = "full") -> None:
    """Histories of all stages, cut where it may be, against the run that is not."""
    program = program_of(entry, materialize)
    dictionary = Dictionary()
    found = {n: distribute(program, partitions=n) for n in (1, 2)}
    ordered = {n: [depends_on_order(plan(s.program)) is not None for s in d.stages] for n, d in found.items()}

    @given(
        streams(entry, program, steps),
        st.sampled_from((1, 2)),
        st.sets(st.integers(1, steps * 2), max_size=4),
        st.sampled_from(("event", "interval", "end")),
    )
    def run_streams(stream, partitions, cuts, unit):  # type: ignore[no-untyped-def]
        distribution = found[partitions]
        blocks = blocks_of(program, coded(program, dictionary, changes(*stream)))
        whole = histories(distribution, dictionary, blocks, partitions, "interpreter", unit)
        stamps = sorted({-(-cut // 3) * 3 for cut in cuts} if unit == "interval" else cuts)
        cut = [s.number for s, o in zip(distribution.stages, ordered[partitions], strict=True) if not o]
        pieces = histories(distribution, dictionary, blocks, partitions, "interpreter", unit, stamps, cut)
        assert pieces == whole

    examples(USUAL if steps > 12 else 5)(run_streams)()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("entry", SAMPLE, ids=lambda e: e.name)
def test_pieces_have_the_history_of_the_whole(entry: Entry) -> None:
    check_entry(entry, 12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("materialize", ["full", "none"])
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_every_view_in_pieces(entry: Entry, materialize: str) -> None:
    check_entry(entry, 24, materialize)


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of three symbols and two days, each symbol's in files of its own."""
    folder = tmp_path_factory.mktemp("flow")
    write_records(folder, 450, 3, 2, 5, apart=True)
    return folder


def cuttable(settings: JobSettings) -> frozenset[int]:
    """The stages that read the relations only."""
    stages = layout_of(settings).distribution.stages
    return frozenset(s.number for s in stages if all(e.phase is not Phase.CHANGES for e in s.inputs))


def stamps_of(job: Job) -> list[int]:
    """The stamps of a job's history, in order."""
    return job.history("depth")["stamp"].unique().sort().to_list()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("granularity", "partitions", "pieces"),
    [("event", 1, 4), ("message", 3, 3), ("interval:1000000", 1, 3), ("end", 3, 2), ("end", 1, 2)],
)
def test_jobs_in_pieces_have_the_rows_of_the_whole(
    flow: Path, tmp_path: Path, sample_seed: int, granularity: str, partitions: int, pieces: int
) -> None:
    moments, _ = run(job_settings(tmp_path / "moments", 1), [flow])
    whole, _ = run(job_settings(tmp_path / "whole", partitions, granularity), [flow])
    cut = job_settings(tmp_path / "cut", partitions, granularity)
    chosen = random.Random(sample_seed).sample(stamps_of(moments)[1:], pieces - 1)
    if granularity.startswith("interval"):
        chosen = [-(-stamp // 10**6) * 10**6 for stamp in chosen]
    cuts = Cuts(tuple(sorted(set(chosen))), cuttable(cut))
    job, outcome = run(replace(cut, cuts=cuts), [flow], ForgetfulExecutor())
    assert contents(job) == contents(whole)
    stages = {s.stage for s in outcome.manifest.statistics}
    assert len(outcome.manifest.statistics) > len(stages) or granularity == "end"


def test_a_number_of_pieces_is_taken_as_it_is(flow: Path, tmp_path: Path) -> None:
    whole, _ = run(job_settings(tmp_path / "whole", 1), [flow])
    job, outcome = run(replace(job_settings(tmp_path / "cut", 1), cut_time=5), [flow])
    assert contents(job) == contents(whole)
    events = [s.events for s in outcome.manifest.statistics if s.stage == "stage 0"]
    assert len(events) == 5 and min(events) > 0.2 * max(events)


@pytest.mark.parametrize("partitions", [1, 3])
def test_changes_of_rows_are_there_where_pieces_begin(tmp_path: Path, partitions: int) -> None:
    write_days(tmp_path / "flow", 300, 3, 2, 5, resting=20)
    write_sectors(tmp_path / "sectors.jsonl", 3)
    sources = [tmp_path / "flow", tmp_path / "sectors.jsonl"]
    common: dict[str, Any] = {"sql": CHAIN, "views": CHAINED.views}
    whole, _ = run(job_settings(tmp_path / "whole", 1, **common), sources)
    settings = replace(job_settings(tmp_path / "cut", partitions, **common), forced=CHAINED.key, cut_time=3)
    job, _ = run(settings, sources, ForgetfulExecutor())
    assert contents(job) == contents(whole)
    assert len(job.history("sums")) > 3


def test_sums_of_doubles_are_not_cut(flow: Path, tmp_path: Path) -> None:
    doubles = "CREATE VIEW roots AS SELECT symbol, SUM(SQRT(volume)) AS r FROM bids GROUP BY symbol;"
    settings = job_settings(tmp_path / "job", 1, sql=doubles, views=("roots",))
    with pytest.raises(UserError, match=r"--cut-time 2: not cut in time: roots: .*doubles"):
        run(replace(settings, cut_time=2), [flow])
    both = "CREATE VIEW most AS SELECT MAX(volume) AS m FROM asks;" + doubles
    settings = job_settings(tmp_path / "job", 2, sql=both, views=("roots", "most"))
    cut, notes = with_cuts(replace(settings, cut_time=2), source_specs([str(flow)]), 1)
    names = {v for s in layout_of(cut).cut_stages for v in s.views}
    assert names == {"most"} and "roots" in notes[0] and notes[1].endswith("2 pieces: most")


@pytest.mark.parametrize("cost", [0.2e-6, 50e-6])
def test_dear_triggers_are_cut_where_cores_are_free(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    monkeypatch.setattr(time_cuts, "_LEAST_EVENTS", 0)
    found = lambda _, stages, __: Sample({stage.number: cost for stage in stages}, 9)  # noqa: E731
    monkeypatch.setattr(time_cuts, "sampled", found)
    monkeypatch.setattr(time_cuts, "spans_of", lambda _: (Span(0, 10**9, 10**7),))
    specs = source_specs([str(flow)])
    settings = replace(job_settings(tmp_path / "job", 2), cut_time="auto")
    assert with_cuts(settings, specs, 1) == (settings, ())
    cut, notes = with_cuts(settings, specs, 4)
    names = {v for s in layout_of(cut).cut_stages for v in s.views}
    # Sums cost a few steps, whatever a sample says; what is looked up for each broker may cost more.
    assert "everything" not in names and ("large" in names) == (cost > 1e-6) == bool(notes)


def test_the_option_of_the_command() -> None:
    assert [parsed_cut_time(text) for text in ("auto", "never", "12")] == ["auto", "never", 12]
    for text in ("0", "-1", "few", ""):
        with pytest.raises(UserError, match="--cut-time"):
            parsed_cut_time(text)


def test_pieces_have_equally_many_events(flow: Path) -> None:
    spans = [Span(100, 199, 300), Span(150, 199, 100), Span(1000, 1000, 400)]
    assert quantiles(spans, 2) == (1000,)
    halves = quantiles(spans[:2], 2)
    assert len(halves) == 1 and 158 <= halves[0] <= 162
    assert quantiles(spans, 4, 50) == (200, 1000)
    assert quantiles([], 3) == () and quantiles([Span(5, 5, 9)], 3) in ((), (6,))
    specs = source_specs([str(flow)])
    assert sum(span.events for span in spans_of(specs)) == sum(spec.rows for spec in specs)
    read = [replace(s, paths=(), text=f"record:{path}") for s in specs for path in s.paths]
    assert sum(span.events for span in spans_of(read)) == sum(spec.rows for spec in specs)
