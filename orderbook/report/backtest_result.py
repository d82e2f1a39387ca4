"""A backtest as Python has it: its rows as polars frames, and its report, also in a notebook."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape

import polars as pl

from orderbook.core.errors import UserError, suggestion
from orderbook.feeds.source import Finding
from orderbook.feeds.storage import Place
from orderbook.jobs.job import Job
from orderbook.report.page import body, write_report
from orderbook.report.parts import page
from orderbook.report.results import Report, report_of
from orderbook.report.sweeps import combinations_of, walk_forward

_HEIGHT = 560


class Histories(dict[str, pl.DataFrame]):
    """The histories of a job's views by their names. Raises UserError for a view that it does not have."""

    def __init__(self, job: Job) -> None:
        super().__init__((name, job.history(name)) for name in job.views)
        self._job = job

    def __missing__(self, name: str) -> pl.DataFrame:
        return self._job.history(name)


class BacktestResult:
    """What a backtest made, read from its folder when it is asked for.

    findings: what makes it incomplete; problems: of its input, as lines. Times are Datetime("ns"), UTC.
    """

    def __init__(self, job: Job, findings: Sequence[Finding] = (), problems: Sequence[str] = ()) -> None:
        self.job = job
        self.findings, self.problems = tuple(findings), tuple(problems)

    @property
    def folder(self) -> Place:
        """The job's folder, for `orderbook query --job` and `orderbook report --job`."""
        return self.job.folder

    @cached_property
    def orders(self) -> pl.DataFrame:
        """Every order as it stood at the end."""
        return self.job.orders()

    @cached_property
    def fills(self) -> pl.DataFrame:
        """Every fill, in order."""
        return self.job.fills()

    @cached_property
    def positions(self) -> pl.DataFrame:
        """Position, mid and worth of each instrument over time."""
        return self.table("positions")

    @cached_property
    def equity(self) -> pl.DataFrame:
        """Equity, drawdown and turnover of each strategy over time."""
        return self.table("equity")

    @cached_property
    def views(self) -> Mapping[str, pl.DataFrame]:
        """The history of every view: its rows with the version of the event that caused them."""
        return Histories(self.job)

    def view(self, name: str) -> pl.DataFrame:
        """The rows of a view at the end. Raises UserError for one that the job does not have."""
        return self.job.view(name)

    @cached_property
    def signals(self) -> pl.DataFrame:
        """The sampled columns that strategies go by."""
        return self.table("signals")

    @cached_property
    def statistics(self) -> pl.DataFrame:
        """Of each strategy, and of each of its instruments: profit, fees, drawdown, …"""
        return self.table("statistics")

    @property
    def combinations(self) -> pl.DataFrame:
        """Of a sweep, a row for each combination, with its parameters. Raises UserError of another job."""
        return combinations_of(self._swept())

    def walk_forward(self, train: int | None = None) -> pl.DataFrame:
        """Of a sweep, what each period earns by the combination that earned most in `train` periods before it
        (None: in all). Raises UserError of another job."""
        found = walk_forward(self._swept(), train)
        return found.with_columns(pl.col(pl.Datetime).dt.replace_time_zone(None))

    def table(self, name: str) -> pl.DataFrame:
        """One of the job's tables, as docs/strategies.md lists them; empty where there were no strategies.

        Raises UserError for a name that none has.
        """
        known = self.job.manifest.tables
        if known and name not in known:
            raise UserError(f"no table {name!r}; {suggestion(name, known)}")
        return self.job.table(name)

    def sql(self, query: str) -> pl.DataFrame:
        """SQL (DuckDB's) over views, orders, fills and tables. Raises UserError with its message."""
        return self.job.sql(query)

    def report(self) -> Place:
        """The path of the page `report.html`, written again. Raises UserError where no strategy was run."""
        path, _ = write_report(self.folder)
        return path

    def _swept(self) -> Report:
        if not self.job.manifest.swept:
            raise UserError("not a sweep: give a parameter several values, as in parameters={'k': [1, 2]}")
        return self._report

    @cached_property
    def _report(self) -> Report:
        return report_of(self.job)

    def __repr__(self) -> str:
        names = ", ".join([*self.job.manifest.strategies][:3]) or ", ".join(self.job.views)
        return (
            f"BacktestResult({names}; {len(self.orders):,} orders, {len(self.fills):,} fills; {self.folder})"
        )

    def _repr_html_(self) -> str:
        """The report in a frame of its own; of a job without strategies the ends of its views."""
        if not self.job.manifest.strategies:
            return "".join(f"<b>{escape(name)}</b>{self.view(name)._repr_html_()}" for name in self.job.views)
        shown = escape(page(str(self.folder), body(self._report)))
        return f'<iframe srcdoc="{shown}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
