"""The value of a scalar of the calculus on encoded words, for the interpreter and for plain conditions."""

from collections.abc import Mapping

from orderbook.dictionary import Dictionary
from views.compiler.calculus import Apply, Const, Scalar, Var
from views.scalars.evaluate import NAMED, evaluate

Word = int | float | None


def scalar_value(scalar: Scalar, environment: Mapping[Var, Word], dictionary: Dictionary) -> Word:
    """The scalar where variables are the words of `environment`: scaled integers, ns, codes, floats, None.

    Of `if` only the branch that is taken is evaluated.
    """
    match scalar:
        case Var():
            return environment[scalar]
        case Const(str() as text):
            return dictionary.encode(text)
        case Const(int() | float() | None as value):
            return value
        case Apply("if", (condition, then, otherwise)):
            chosen = then if scalar_value(condition, environment, dictionary) else otherwise
            return scalar_value(chosen, environment, dictionary)
        case Apply(op, args) if op in NAMED:
            place = NAMED[op]
            words = [
                a.value if i == place and isinstance(a, Const) else scalar_value(a, environment, dictionary)
                for i, a in enumerate(args)
            ]
            return evaluate(op, words, dictionary.decode)
        case Apply(op, args):
            return evaluate(op, [scalar_value(a, environment, dictionary) for a in args])
    raise TypeError(scalar)
