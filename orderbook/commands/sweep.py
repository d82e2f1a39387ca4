"""`--set NAME=VALUE,…` of `orderbook backtest`: values of parameters, and the combinations of several."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any

from orderbook.assembly import Assembly, assemble, parameters_of
from orderbook.backtest.job_program import JobProgram
from orderbook.backtest.sweep import Combination
from orderbook.configuration import Configuration, strategy_table
from orderbook.configuration_errors import suggestion
from orderbook.errors import UserError
from strategies.definition import load_strategy
from strategies.strategy import parameters_named

# More are more likely a mistake than a wish.
_MOST = 10_000

Values = Mapping[str, Sequence[Any]]
Configured = Callable[[Mapping[str, object]], Configuration]


def parsed_sets(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each NAME=VALUE,…: numbers, true and false, else text. Raises UserError."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not all(part.strip() for part in values.split(",")):
            raise UserError(f"--set {text}: expected NAME=VALUE, or NAME=VALUE,VALUE,… for combinations")
        if name in found:
            raise UserError(f"--set {text}: {name} is set twice; write --set {name}=VALUE,VALUE")
        found[name] = list(dict.fromkeys(_value(part.strip()) for part in values.split(",")))
    count = 1
    for own in found.values():
        count *= len(own)
    if count > _MOST:
        raise UserError(f"--set: {count:,} combinations, and the most is {_MOST:,}")
    return found


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return text
    return int(text) if text.lstrip("-").isdecimal() else number


def places(configuration: Configuration, names: Sequence[str]) -> dict[str, list[str]]:
    """The keys of the configuration that each name sets: of strategies that have it as a default or in a
    condition, else of views, else of strategies that take it otherwise.

    Raises UserError for a name that none has.
    """
    strategies = {path: load_strategy(path) for path in configuration.run.strategies}
    of_views: set[str] | None = None
    found: dict[str, list[str]] = {}
    for name in names:
        own = [path for path, one in strategies.items() if name in parameters_named(one.kind, code=False)]
        if not own and of_views is None:
            of_views = parameters_of(view.sql for view in assemble(configuration).program.catalog.views)
        if not own and of_views is not None and name in of_views:
            found[name] = [f"parameters.{name}"]
            continue
        own = own or [path for path, one in strategies.items() if one.refusal_of(name) is None]
        if not own:
            known = set(of_views or ()).union(*(parameters_named(one.kind) for one in strategies.values()))
            raise UserError(
                f"--set {name}: neither the strategies nor their views have it; {suggestion(name, known)}"
            )
        found[name] = [f"strategies.{strategy_table(path)}.{name}" for path in own]
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """What `--set` asks for: a configuration with every single value, and the names that have several.

    keys: those of the configuration that each name sets. configured: the configuration with these set.
    """

    configuration: Configuration
    values: Values
    keys: Mapping[str, Sequence[str]]
    configured: Configured


def choice(configured: Configured, texts: Sequence[str]) -> Choice:
    """What the texts of `--set` choose. Raises UserError."""
    values = parsed_sets(texts)
    keys = places(configured({}), list(values)) if values else {}
    single = {key: own[0] for name, own in values.items() if len(own) == 1 for key in keys[name]}
    several = {name: own for name, own in values.items() if len(own) > 1}
    return Choice(configured(single), several, keys, lambda changes: configured({**single, **changes}))


def combinations(choice: Choice) -> tuple[tuple[Combination, ...], Assembly]:
    """Every combination of values, in order, the last name's fastest; and the views that are shown, which all
    have in common.

    Views are compiled once for all values of theirs. Raises UserError where there is no strategy, or a view
    that is shown has a parameter of several values.
    """
    values, keys = choice.values, choice.keys
    if not choice.configuration.run.strategies:
        raise UserError("--set with several values compares strategies; name a --strategy")
    shown = assemble(choice.configuration.with_run(strategies=()))
    parameters = parameters_of(view.sql for view in shown.program.catalog.views)
    for name in values:
        if f"parameters.{name}" in keys[name] and name in parameters and shown.views:
            raise UserError(
                f"--set {name}: {', '.join(shown.views)} would have a history for each value; "
                "leave --view out, or give one value"
            )
    assembled: dict[tuple[Any, ...], Assembly] = {}
    of_views = [name for name in values if keys[name][0].startswith("parameters.")]
    found = []
    for number, chosen in enumerate(product(*values.values()), start=1):
        by_name = dict(zip(values, chosen, strict=True))
        changes = {key: value for name, value in by_name.items() for key in keys[name]}
        configuration = choice.configured(changes)
        seen = tuple(by_name[name] for name in of_views)
        if seen not in assembled:
            assembled[seen] = assemble(configuration.without_views())
        names = configuration.run.strategies
        strategies = tuple((name, dict(configuration.strategy_parameters(name))) for name in names)
        found.append(Combination(number, by_name, strategies, JobProgram.of(assembled[seen].program)))
    return tuple(found), shown
