"""Finding strategies by name: MODULE:CLASS."""

import importlib
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import get_args

from orderbook.configuration_errors import suggestion
from orderbook.errors import ConfigurationError
from strategies.orders import FILL_COLUMNS, ORDER_COLUMNS
from strategies.strategy import Parameter, PartitionBy, Strategy, parameters_named, watches_of
from views.compiler.program import CompiledProgram

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class StrategyDefinition:
    """A strategy to run: its class, the parameters that its configuration sets, and what it is called where
    one class runs several times."""

    kind: type[Strategy]
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: MappingProxyType({}))
    label: str | None = None

    @property
    def name(self) -> str:
        """What names the strategy everywhere: its label, else the class's name."""
        return self.label or self.kind.__name__

    @property
    def partition_by(self) -> PartitionBy | None:
        """What the class is partitioned by. Raises ConfigurationError for what it cannot be."""
        column = self.kind.partition_by
        if column is not None and column not in get_args(PartitionBy):
            known = " or ".join(map(repr, get_args(PartitionBy)))
            raise ConfigurationError(f"{self.name}: partition_by = {column!r}; give {known}, or None")
        return column

    def refusal_of(self, parameter: str) -> str | None:
        """Why the class has no parameter of this name; None where it has."""
        named = parameters_named(self.kind)
        if parameter in named or any(fnmatchcase(parameter, one) for one in self.kind.accepts):
            return None
        return f"{self.kind.__name__} has no such parameter; {suggestion(parameter, named)}"

    @property
    def views(self) -> tuple[str, ...]:
        """The views that the class watches or reads. Raises ConfigurationError where `reads` names none."""
        reads = self.kind.reads
        if not isinstance(reads, tuple) or not all(isinstance(name, str) for name in reads):
            raise ConfigurationError(f'{self.name}: reads = {reads!r}; give names of views, as in ("touch",)')
        return tuple(dict.fromkeys([*(watch.view for watch in watches_of(self.kind)), *reads]))


def load_strategy(text: str, parameters: Mapping[str, Parameter] | None = None) -> StrategyDefinition:
    """The strategy `MODULE:CLASS`, its module found as Python finds it or in the working folder.

    Raises ConfigurationError where there is no such module or class, the module raises, the class is not a
    Strategy, or has no such parameter, naming the nearest there is.
    """
    definition = StrategyDefinition(_kind(text), MappingProxyType(dict(parameters or {})))
    for name in definition.parameters:
        if (why := definition.refusal_of(name)) is not None:
            raise ConfigurationError(f"strategy {text!r}: {name}: {why}")
    return definition


def _kind(text: str) -> type[Strategy]:
    module_name, colon, class_name = text.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigurationError(f"strategy {text!r}: expected MODULE:CLASS, such as strategies.sobi:Sobi")
    module = _module(text, module_name)
    found = getattr(module, class_name, None)
    if isinstance(found, type) and issubclass(found, Strategy) and found is not Strategy:
        return found
    near = suggestion(class_name, _strategies(module))
    if found is not None:
        raise ConfigurationError(
            f"strategy {text!r}: {class_name} is no class derived from strategies.Strategy; {near}"
        )
    raise ConfigurationError(f"strategy {text!r}: {module_name} has no class {class_name!r}; {near}")


def _module(text: str, name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            near = suggestion(name, _modules())
            raise ConfigurationError(f"strategy {text!r}: no module {name!r}; {near}") from None
        raise ConfigurationError(f"strategy {text!r}: {name} cannot be imported: {error}") from error
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"strategy {text!r}: {name} cannot be imported: {message}") from error


def _modules() -> Iterable[str]:
    """Modules that may hold strategies: those of this package that ship one, and the working folder's."""
    package = importlib.import_module(_PACKAGE)
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{_PACKAGE}.{found.name}")
        if _strategies(module):
            yield module.__name__
    yield from (path.stem for path in sorted(Path.cwd().glob("*.py")))


def _strategies(module: ModuleType) -> list[str]:
    """The names of the strategies that a module has."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Strategy) and value is not Strategy
    ]


def check_relations(program: CompiledProgram, strategies: Iterable[StrategyDefinition]) -> None:
    """Raises ConfigurationError for two strategies of one name, or if views declare orders or fills."""
    names = [strategy.name for strategy in strategies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two strategies are called {name}; rename a class")
    relations = {relation.name: relation for relation in program.relations}
    for name, columns in (("orders", ORDER_COLUMNS), ("fills", FILL_COLUMNS)):
        if names and tuple(column.name for column in relations[name].columns) != columns:
            raise ConfigurationError(
                f"the views declare a relation {name} of their own, where strategies keep theirs; rename it"
            )
