"""Nodes of syntax trees that sqlglot has none of: our declarations, and aggregates."""

from typing import ClassVar

from sqlglot import exp


class CreateRelation(exp.Expression):
    """CREATE STREAM or CREATE TABLE: `this` the name, columns, checks and keys, options.

    `expressions` are ColumnDefs, CheckColumnConstraints and PrimaryKeys; `retain` is an Interval,
    `retain_by` the Identifier of the column that RETAIN counts from.
    """

    arg_types: ClassVar = {
        "this": True,
        "expressions": True,
        "static": True,
        "source": False,
        "max_rows": False,
        "retain": False,
        "retain_by": False,
    }


class CreateView(exp.Expression):
    """CREATE VIEW: `this` the name, `expression` the query, `materialize` a word of MATERIALIZE or None."""

    arg_types: ClassVar = {"this": True, "expression": True, "materialize": False}


class CreateStrategy(CreateView):
    """CREATE STRATEGY: a view of orders; `options` are EQs of a Var and its value, in the text's order."""

    arg_types: ClassVar = {"this": True, "expression": True, "options": False}


class CreateParameter(exp.Expression):
    """CREATE PARAMETER: `this` the name, `expression` what :name stands for where it is given no value.

    `check` is the condition that a value must meet.
    """

    arg_types: ClassVar = {"this": True, "expression": True, "check": False}


class CreateMacro(exp.Expression):
    """CREATE MACRO: `this` the name, `expressions` the parameters, `expression` what it stands for.

    `table` says that this is a query.
    """

    arg_types: ClassVar = {"this": True, "expressions": False, "expression": True, "table": False}


class MacroParameter(exp.Expression):
    """A parameter of a macro: `this` its name, `default` what it is where it is not given."""

    arg_types: ClassVar = {"this": True, "default": False}


class MatchRecognize(exp.Expression):
    """MATCH_RECOGNIZE: `this` the table or subquery it reads, and its clauses as they stand.

    `measures` are Aliases, `define` Aliases of conditions by pattern variables, `rows` and `after` Vars of
    what they say, `pattern` a Var of the text in its parentheses, `within` an Interval or a number.
    """

    arg_types: ClassVar = {
        "this": True,
        "partition_by": False,
        "order": False,
        "measures": False,
        "rows": False,
        "after": False,
        "pattern": True,
        "within": False,
        "define": False,
        "alias": False,
    }


class CreateFunction(exp.Expression):
    """CREATE FUNCTION in Python: `this` the name, `expressions` ColumnDefs, `kind` the type of its result.

    `target` is a string, MODULE:FUNCTION.
    """

    arg_types: ClassVar = {"this": True, "expressions": False, "kind": True, "target": True}


class UserCall(exp.Anonymous):
    """A call of a function in Python, which is `function`; `this` its name, `expressions` its arguments."""

    arg_types: ClassVar = {"this": True, "expressions": False, "function": True}


class Outward(exp.Expression):
    """An expression that is bound in the query that stands so many `levels` further out."""

    arg_types: ClassVar = {"this": True, "levels": True}


class KurtosisPop(exp.Expression, exp.AggFunc):
    """KURTOSIS_POP(x), which sqlglot has no node of."""

    _sql_names: ClassVar = ["KURTOSIS_POP"]


class Ewma(exp.Expression, exp.AggFunc):
    """EWMA(x, half_life, ts): the mean of x, each weighed by 0.5 to the power of its age in half-lives."""

    arg_types: ClassVar = {"this": True, "half_life": False, "expression": False, "as_of": False}


class DecayedSum(exp.Expression, exp.AggFunc):
    """DECAYED_SUM(x, half_life, ts): the sum of x, weighed likewise; its age is that at the time `as_of`."""

    _sql_names: ClassVar = ["DECAYED_SUM"]
    arg_types: ClassVar = {"this": True, "half_life": False, "expression": False, "as_of": False}


class QuantileCont(exp.Expression, exp.AggFunc):
    """QUANTILE_CONT(x, q), which is PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x)."""

    arg_types: ClassVar = {"this": True, "expression": True}
    _sql_names: ClassVar = ["QUANTILE_CONT"]


class QuantileDisc(exp.Expression, exp.AggFunc):
    """QUANTILE_DISC(x, q), which is PERCENTILE_DISC(q) WITHIN GROUP (ORDER BY x)."""

    arg_types: ClassVar = {"this": True, "expression": True}
    _sql_names: ClassVar = ["QUANTILE_DISC"]


class Composed(exp.Anonymous, exp.AggFunc):
    """An aggregate that is a formula of others; `this` its name, `expressions` its arguments."""


class Entropy(exp.Expression, exp.AggFunc):
    """ENTROPY(x): the information of a value of x, in bits."""


class BitAnd(exp.Expression, exp.AggFunc):
    """BIT_AND(x): the bits that all values of x have."""

    _sql_names: ClassVar = ["BIT_AND"]


class BitOr(exp.Expression, exp.AggFunc):
    """BIT_OR(x): the bits that some value of x has."""

    _sql_names: ClassVar = ["BIT_OR"]


class BitXor(exp.Expression, exp.AggFunc):
    """BIT_XOR(x): the bits that an odd number of values of x have."""

    _sql_names: ClassVar = ["BIT_XOR"]


class Histogram(exp.Expression, exp.AggFunc):
    """HISTOGRAM(x): how often each value of x stands."""


class Mad(exp.Expression, exp.AggFunc):
    """MAD(x): the median distance from the median."""
