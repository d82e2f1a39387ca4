"""Functions of Python that users declare: `MODULE:FUNCTION`, its types, and what it is made of.

One is found where it is declared and again in every process that a program is sent to, as a strategy is: its
module is imported. It must then be the same, since what a program holds was computed by it. In the calculus
it is the text that it is shown as, by which it is equal to another.
"""

import hashlib
import re
import traceback
from collections.abc import Sequence
from ctypes import addressof, c_int64
from functools import cached_property
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from orderbook.core.errors import DataError, UserError, suggestion
from orderbook.core.user_functions import (
    MOST_PARAMETERS,
    RAISED,
    NotCompiledError,
    Signature,
    digest_of,
    plain,
)
from orderbook.core.user_modules import imported
from orderbook.views.types import Kind, Type

if TYPE_CHECKING:
    from orderbook.core.compiled_functions import CompiledFunction

_TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
_LETTERS = {Kind.INTEGER: "i", Kind.TIMESTAMP: "i", Kind.DOUBLE: "d", Kind.BOOLEAN: "b"}
# Of 60 bits: it is written in generated code.
_DIGITS = 15


class UserFunction(str):
    """A function with its types; as text, which programs show, `MODULE:FUNCTION#digest`.

    target: MODULE:FUNCTION. folder: where its module was looked for first. parameters, result: INTEGER of any
    interval, DOUBLE, BOOLEAN or TIMESTAMP (ns). digest: of what it is made of.
    """

    target: str
    folder: str | None
    parameters: tuple[Type, ...]
    result: Type
    digest: str
    function: Any

    @classmethod
    def of(cls, target: str, folder: str | None, parameters: Sequence[Type], result: Type) -> "UserFunction":
        """The function, compiled. Raises UserError where there is none, or it cannot be compiled so."""
        function = _found(target, folder)
        _check_parameters(target, plain(function), len(parameters))
        own = cls._made(target, folder, tuple(parameters), result, digest_of(function), function)
        try:
            own.compiled  # noqa: B018
        except NotCompiledError as error:
            raise UserError(f"{target} is not compiled by numba: {error}") from None
        return own

    @classmethod
    def _made(
        cls,
        target: str,
        folder: str | None,
        parameters: tuple[Type, ...],
        result: Type,
        digest: str,
        found: Any,
    ) -> "UserFunction":
        made_of = hashlib.sha256(f"{digest} {parameters} {result}".encode()).hexdigest()
        own = cls(f"{target}#{made_of[:16]}")
        own.target, own.folder, own.parameters, own.result = target, folder, parameters, result
        own.digest, own.function = digest, found
        return _known.setdefault(own.number, own)

    def __reduce__(self) -> Any:
        return restored, (self.target, self.folder, self.parameters, self.result, self.digest)

    @property
    def module(self) -> str:
        """The name of its module."""
        return self.target.partition(":")[0]

    @cached_property
    def number(self) -> int:
        """What generated code knows it by."""
        return int(hashlib.sha256(self.encode()).hexdigest()[:_DIGITS], 16)

    @cached_property
    def signature(self) -> Signature:
        """Its types as compiled code has them."""
        letters = "".join(_LETTERS[kind.kind] for kind in self.parameters)
        return Signature(letters, _LETTERS[self.result.kind], self.result.low, self.result.high)

    @property
    def compiled(self) -> "CompiledFunction":
        """The function as C calls it. Raises NotCompiledError."""
        from orderbook.core.compiled_functions import compiled

        return compiled(self.function, self.digest, self.number, self.signature)

    def value(self, *arguments: float) -> int | float:
        """Its value, infinity where that is none that a double holds. Raises DataError where it raises."""
        words = (c_int64 * (1 + MOST_PARAMETERS))()
        value = self.compiled.call(addressof(words), *arguments)
        if value != value or value == RAISED:
            raise self.raised(words[:])
        return value

    def raised(self, words: Sequence[int]) -> DataError:
        """The error of what it has noted: found by calling it in Python."""
        own = self.signature
        given = own.noted(words)
        said = f"{self.target}({', '.join(map(repr, given))})"
        try:
            own.in_range(plain(self.function)(*own.in_python(given)))  # type: ignore[misc]
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            where = f" ({Path(frames[0].filename).name}, line {frames[0].lineno})" if frames else ""
            return DataError(f"{said} raised {type(error).__name__}: {error}{where}")
        return DataError(f"{said} raised an error in compiled code that it does not raise in Python")


_known: dict[int, UserFunction] = {}


def by_number(number: int) -> UserFunction:
    """The function that generated code knows by a number."""
    return _known[number]


def noted_error(words: Sequence[int]) -> DataError:
    """The error of the words that compiled functions note where they raise."""
    return by_number(words[0]).raised(words)


def restored(
    target: str, folder: str | None, parameters: tuple[Type, ...], result: Type, digest: str
) -> UserFunction:
    """The function in this process, for pickles. Raises UserError where it is not there, or another one."""
    function = _found(target, folder)
    if plain(function) is None or digest_of(function) != digest:
        raise UserError(
            f"{target} is another function here than where the program was compiled; compile anew"
        )
    return UserFunction._made(target, folder, parameters, result, digest, function)


def _found(target: str, folder: str | None) -> Any:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise UserError(f"{target!r}: expected MODULE:FUNCTION, such as signals:decay")
    module = _module(match[1], folder)
    found = getattr(module, match[2], None)
    if plain(found) is None:
        functions = [name for name, value in vars(module).items() if plain(value) is not None]
        what = "is no function" if hasattr(module, match[2]) else "is not there"
        raise UserError(f"{target}: {match[2]} {what} in {match[1]}; {suggestion(match[2], functions)}")
    return found


def _module(name: str, folder: str | None) -> ModuleType:
    """The module beside the file that names it, else as Python finds it or in the working folder."""
    beside = [] if folder is None else [Path(folder).resolve()]
    own = next((file for place in beside for file in _files(place, name) if file.is_file()), None)
    names = [file.stem for place in beside for file in place.glob("*.py")]
    module = imported(name, [Path.cwd(), *(beside if own else ())], lambda: names)
    file = getattr(module, "__file__", None)
    if own is not None and (file is None or not own.samefile(file)):
        raise UserError(
            f"module {name} is {file or 'one of Python'}, not {own.name} beside the file; rename it"
        )
    return module


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    place = folder.joinpath(*name.split("."))
    return place.with_suffix(".py"), place / "__init__.py"


def _check_parameters(target: str, function: Any, count: int) -> None:
    code = function.__code__
    required = code.co_argcount - len(function.__defaults__ or ())
    if code.co_kwonlyargcount or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS):
        raise UserError(f"{target} takes arguments by name, or any number of them; give each a place")
    if not required <= count <= code.co_argcount:
        said = f"{required} to {code.co_argcount}" if required < code.co_argcount else f"{required}"
        raise UserError(f"{target} takes {said} argument{'s' * (said != '1')}, and is declared with {count}")
