"""`evaluate`: a value function of the calculus on Python numbers, by its name.

Functions of numbers and moments are plain Python that numba compiles as it is, so that the interpreter
and generated code cannot differ. `evaluate` applies any of them by the name it has in the calculus.

SQL's LIKE is a `Pattern`: `%` is any run of characters, `_` any one of them, and the pattern is the whole
string.
"""

import operator
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

from orderbook.core.errors import ExactnessError
from orderbook.views.scalars import calendar, integers, reals, texts
from orderbook.views.types import INT128_MAX


class Pattern(NamedTuple):
    """A pattern of LIKE, or of ILIKE where case is ignored."""

    text: str
    ignore_case: bool = False

    def matches(self, string: str) -> bool:
        """Whether the whole string is as the pattern says; takes |string| * |pattern| steps at most."""
        if self.ignore_case:
            string = string.lower()
        first, *others = _runs(self)
        if not others:
            return len(string) == len(first) and _is_at(first, string, 0)
        last = others.pop()
        end = len(string) - len(last)
        at = len(first)
        if end < at or not _is_at(first, string, 0) or not _is_at(last, string, end):
            return False
        for run in others:
            # The leftmost place leaves most room to the runs that follow.
            while at + len(run) <= end and not _is_at(run, string, at):
                at += 1
            if at + len(run) > end:
                return False
            at += len(run)
        return True


@cache
def _runs(pattern: Pattern) -> tuple[str, ...]:
    """The pieces between `%`."""
    text = pattern.text.lower() if pattern.ignore_case else pattern.text
    return tuple(text.split("%"))


def _is_at(run: str, string: str, place: int) -> bool:
    return all(c in ("_", string[place + i]) for i, c in enumerate(run))


# Functions whose text argument at this place is a constant: a name or a pattern, not a value.
NAMED = {"date_part": 0, "date_trunc": 0, "like": 1, "ilike": 1, "call": 0}


def evaluate(op: str, args: Sequence[Any], words: texts.Texts | None = None) -> int | float:
    """The value of `op`; 0 where an argument is NULL, which is None (a NULL that is masked comes in so).

    Integers are exact and doubles are floats. Texts are codes of the dictionary `words`; that of `like` and
    `ilike` may be a string. Patterns, and the names of `date_part` and `date_trunc`, are strings; what `call`
    calls is a UserFunction. Raises ExactnessError beyond 128 bits, ValueError for an unknown function, and
    DataError where one of a user raises.
    """
    if op == "is_null":
        return int(args[0] is None)
    if None in args:
        return 0
    function = FUNCTIONS.get(op)
    if function is None:
        return _of_texts(op, args, words)
    value = function(*args)
    if isinstance(value, int) and not -INT128_MAX - 1 <= value <= INT128_MAX:
        raise ExactnessError(f"a value of {op} does not fit 128 bits")
    # What compiled code holds as -0.0 is NULL.
    return value + 0.0 if isinstance(value, float) else value


def _of_texts(op: str, args: Sequence[Any], words: texts.Texts | None) -> int | float:
    if op in ("like", "ilike"):
        text = args[0] if isinstance(args[0], str) or words is None else words.decode(args[0])
        return int(Pattern(args[1], op == "ilike").matches(text))
    if op not in texts.FUNCTIONS:
        raise ValueError(f"unknown function {op}")
    if words is None:
        raise ValueError(f"{op} of texts without a dictionary")
    return texts.of_codes(op, args, words)


def _of_doubles(function: Callable[..., float]) -> Callable[..., float]:
    return lambda *args: function(*map(float, args))


def _double(value: float, scale: int) -> float:
    return float(value) / float(10**scale) if scale else float(value)


def _of_sums(name: str) -> Callable[..., float]:
    """A function of sums: of integers without rounding before the end, else of doubles."""

    def call(*sums: float) -> float:
        if all(isinstance(s, int) for s in sums):
            return float(getattr(integers, name)(*sums))
        return float(_of_doubles(getattr(reals, name))(*sums))

    return call


def _date_part(name: str, moment: int) -> float:
    return calendar.epoch(moment) if name == "epoch" else calendar.PARTS[name][0](moment)


FUNCTIONS: dict[str, Callable[..., int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "neg": operator.neg,
    "/": _of_doubles(reals.divide),
    "=": lambda left, right: int(left == right),
    "<>": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    "<=": lambda left, right: int(left <= right),
    ">": lambda left, right: int(left > right),
    ">=": lambda left, right: int(left >= right),
    "and": lambda *conditions: int(all(conditions)),
    "or": lambda *conditions: int(any(conditions)),
    "not": lambda condition: int(not condition),
    "if": lambda condition, then, otherwise: then if condition else otherwise,
    "double": _double,
    "abs": abs,
    "sign": integers.sign,
    "least": lambda *values: reduce(integers.least, values),
    "greatest": lambda *values: reduce(integers.greatest, values),
    "floor_div": integers.floor_div,
    "ceil_div": integers.ceil_div,
    "trunc_div": integers.trunc_div,
    "round_div": integers.round_div,
    "mod": integers.mod,
    "sqrt": _of_doubles(reals.sqrt),
    "ln": _of_doubles(reals.ln),
    "log10": _of_doubles(reals.log10),
    "exp": _of_doubles(reals.exp),
    "power": _of_doubles(reals.power),
    "atan2": _of_doubles(reals.atan2),
    **{name: _of_doubles(function) for name, function in reals.TRIGONOMETRY.items()},
    "floor": _of_doubles(reals.floor),
    "ceil": _of_doubles(reals.ceil),
    "trunc": _of_doubles(reals.trunc),
    "round": lambda value, digits: reals.round_to(float(value), digits),
    "is_finite": lambda value: int(reals.is_finite(float(value))),
    "rest": lambda value: integers.rest(value, float(value)),
    "exact": lambda value, scale: integers.exact(float(value), scale),
    **{name: _of_sums(name) for name in ("spread", "third", "fourth")},
    "date_part": _date_part,
    "date_trunc": lambda name, moment: calendar.UNITS[name](moment),
    "call": lambda function, *args: function.value(*args),
}
