"""SQL as clients of PostgreSQL write it: names without their schema, and queries over the catalog.

A query over views and relations stays as it is written, but for `public.` and times with a time zone. One
that reads tables of `pg_catalog` or `information_schema`, or nothing, is answered from `postgres_catalog`:
DuckDB has views of these names, which tell of itself. Source: PostgreSQL's documentation, chapter "System
Information Functions".
"""

import re
from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp, parse, tokenize
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from orderbook.clients.postgres_catalog import (
    DATABASE,
    PREFIX,
    SCHEMA,
    SERVER_VERSION,
    SETTINGS,
    TYPE_NAMES,
    TYPE_OIDS,
    TYPES,
    USER,
    Column,
    Table,
    catalog_tables,
)
from orderbook.clients.query_plan import Queryable
from orderbook.core.errors import SqlError


def in_duckdb(sql: str) -> str:
    """The SQL with `public.NAME` and `orderbook.public.NAME` as NAME, and times that have no time zone.

    Raises SqlError for text in quotes that has no end.
    """
    try:
        tokens = tokenize(sql, dialect="postgres")
    except SqlglotError as error:
        raise SqlError(" ".join(str(error).split())) from None
    cut: list[tuple[int, int, str]] = []
    for place, token in enumerate(tokens):
        if _named(token, SCHEMA) and _dot(tokens, place + 1) and not _dot(tokens, place - 1):
            cut.append((token.start, tokens[place + 2].start, ""))
        elif (clock := _clock(tokens, place)) is not None:
            cut.append(clock)
        elif (
            _named(token, DATABASE)
            and _dot(tokens, place + 1)
            and _named(tokens[place + 2], SCHEMA)
            and _dot(tokens, place + 3)
        ):
            cut.append((token.start, tokens[place + 4].start, ""))
    for start, end, instead in reversed(cut):
        sql = sql[:start] + instead + sql[end:]
    return sql


def _clock(tokens: Sequence[Token], place: int) -> tuple[int, int, str] | None:
    """What tells the time with a time zone, with which DuckDB does not compare times of ns; else None."""
    token, name = tokens[place], tokens[place].text.lower()
    called = place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN
    if _dot(tokens, place - 1) or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return None
    if name == "to_timestamp" and called:
        return token.start, token.end + 1, f"{PREFIX}to_timestamp"
    if name in ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp") and called:
        end = place + 2
        if end < len(tokens) and tokens[end].token_type is TokenType.R_PAREN:
            return token.start, tokens[end].end + 1, f"{PREFIX}now()"
    if name in ("current_timestamp", "localtimestamp") and not called:
        return token.start, token.end + 1, f"{PREFIX}now()"
    return None


def _dot(tokens: Sequence[Token], place: int) -> bool:
    """Whether a dot stands there, with something behind it."""
    return 0 <= place < len(tokens) - 1 and tokens[place].token_type is TokenType.DOT


def _named(token: Token, name: str) -> bool:
    return token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and token.text.lower() == name


def tables_of(program: Queryable) -> list[Table]:
    """What the catalog tells of a program: its relations and its views."""
    relations = [
        Table(
            one.name,
            False,
            tuple(Column(c.name, c.type, c.nullable) for c in one.columns),
            key=tuple([c.name for c in one.columns].index(name) + 1 for name in one.primary_key),
        )
        for one in program.relations
    ]
    views = [
        Table(
            one.name,
            True,
            tuple(Column(c.name, c.type) for c in one.columns),
            _select(program.definitions.get(one.name, "")),
        )
        for one in program.views
    ]
    return relations + views


def _select(definition: str) -> str:
    """What a view is, without its name."""
    return re.sub(r"^\s*CREATE\s+VIEW\s+\S+\s+AS\s+", "", definition, count=1, flags=re.IGNORECASE)


_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


def type_name(kind: str) -> str:
    """What messages call a type of DuckDB's, one of `COLUMN_TYPES`; what PostgreSQL has not is text."""
    if kind.endswith("[]"):
        return "integer[]" if kind[:-2] in _INTEGERS else "text[]"
    if kind in _INTEGERS:
        return "integer"
    if kind.startswith("DECIMAL") or kind in ("HUGEINT", "UHUGEINT", "UBIGINT"):
        return "decimal"
    if kind in ("DOUBLE", "FLOAT"):
        return "double"
    if kind == "BOOLEAN":
        return "boolean"
    return "timestamp" if kind.startswith("TIMESTAMP") else "text"


class PostgresCatalog:
    """The tables of the catalog of one program, and queries over them."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._own = {table.name for table in tables}
        self.tables = {
            PREFIX + name: made for name, made in catalog_tables(sorted(tables, key=lambda t: t.name))
        }

    def query(self, sql: str) -> str | None:
        """A query that reads nothing else, over `tables` as DuckDB has it; None where it reads other rows.

        Raises SqlError for one that reads both.
        """
        try:
            trees = parse(sql, dialect="postgres")
        except (SqlglotError, RecursionError):
            return None
        if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
            return None
        tree = trees[0]
        given = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        catalog = [name for table in tree.find_all(exp.Table) if (name := self._catalog_name(table, given))]
        others = [
            table
            for table in tree.find_all(exp.Table)
            if isinstance(table.this, exp.Identifier)
            and table.name.lower() not in given
            and self._catalog_name(table, given) is None
        ]
        if others and not catalog:
            return None
        if others:
            raise SqlError(
                f"{others[0].name} is read beside {catalog[0]} of the catalog; ask one of them at a time"
            )
        return self._rewritten(tree, given).sql("duckdb")

    def _catalog_name(self, table: exp.Table, given: set[str]) -> str | None:
        """The name in `tables` without its prefix of a table of the catalog; None for any other."""
        name, schema = table.name.lower(), table.db.lower()
        if not isinstance(table.this, exp.Identifier) or (name in given and not schema):
            return None
        if schema == "information_schema":
            return f"information_schema_{name}"
        if schema == "pg_catalog" or (not schema and name.startswith("pg_") and name not in self._own):
            return name
        return None

    def _rewritten(self, tree: exp.Expr, given: set[str]) -> exp.Expr:
        for table in list(tree.find_all(exp.Table)):
            name = self._catalog_name(table, given)
            if name is None:
                continue
            if PREFIX + name not in self.tables:
                schema = f"{table.db}." if table.db else ""
                raise SqlError(f"the catalog has no {schema}{table.name}")
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
            table.set("this", exp.to_identifier(PREFIX + name))
            table.set("db", None)
            table.set("catalog", None)
        # Inner nodes first, so that what is replaced holds nothing of PostgreSQL's any more.
        holder = exp.Subquery(this=tree)
        for node in reversed(list(tree.walk())):
            if (made := _in_duckdb(node)) is not node:
                node.replace(made)
        made = holder.this
        assert isinstance(made, exp.Expr)
        return made


_CLASS, _NAMESPACE = f"{PREFIX}pg_class", f"{PREFIX}pg_namespace"
# The row of an oid; its columns have names that no argument of a macro has.
_OWN_CLASS = f"{_CLASS} own_class WHERE own_class.oid = oid_"
_OWN_NAMESPACE = f"{_NAMESPACE} own_space WHERE own_space.oid = oid_"
_OWN_VIEW = f"{PREFIX}pg_views own_view WHERE own_view.oid = oid_"
_OWN_INDEX = f"{PREFIX}pg_indexes own_index WHERE oid_ = own_index.indexrelid"
_TYPE_OF = f"{PREFIX}type_of"
# A name in text as the parser of regclass reads it.
_BARE = f"replace(replace(replace(said, '{SCHEMA}.', ''), 'pg_catalog.', ''), '\"', '')"
# Functions that DuckDB has not, or has of itself.
MACROS = {
    "array_lower(elements, dimension)": "CASE WHEN len(elements) > 0 THEN 1 END",
    "array_remove(elements, gone)": "list_filter(elements, lambda element: element <> gone)",
    "array_to_string(elements, separator)": "list_aggregate(elements, 'string_agg', separator)",
    "array_upper(elements, dimension)": "nullif(len(elements), 0)",
    "class_of(oid_)": f"coalesce((SELECT own_class.relname FROM {_OWN_CLASS}), oid_::VARCHAR)",
    "col_description(oid_, place)": "NULL::VARCHAR",
    "current_catalog()": f"'{DATABASE}'",
    "current_database()": f"'{DATABASE}'",
    "current_schema()": f"'{SCHEMA}'",
    "current_schemas(implicit)": f"CASE WHEN implicit THEN ['pg_catalog', '{SCHEMA}'] ELSE ['{SCHEMA}'] END",
    "current_setting(called, missing_ok := false)": (
        "CASE lower(called) "
        + " ".join(f"WHEN '{name.lower()}' THEN '{value}'" for name, value in SETTINGS.items())
        + " END"
    ),
    "current_user()": f"'{USER}'",
    "format_type(oid_, modifier)": (
        "CASE WHEN oid_ = 1700 AND modifier >= 4 THEN 'numeric(' || ((modifier - 4) // 65536) || ',' || "
        f"((modifier - 4) % 65536) || ')' ELSE {_TYPE_OF}(oid_) END"
    ),
    "has_any_column_privilege(a, b, c := '')": "true",
    "has_database_privilege(a, b, c := '')": "true",
    "has_function_privilege(a, b, c := '')": "true",
    "has_schema_privilege(a, b, c := '')": "true",
    "has_table_privilege(a, b, c := '')": "true",
    "inet_server_addr()": "NULL::VARCHAR",
    "inet_server_port()": "NULL::BIGINT",
    "namespace_of(oid_)": f"coalesce((SELECT own_space.nspname FROM {_OWN_NAMESPACE}), oid_::VARCHAR)",
    "now()": "now() AT TIME ZONE 'UTC'",
    "obj_description(oid_, catalog_ := '')": "NULL::VARCHAR",
    "parse_ident(said)": "string_split(replace(said, '\"', ''), '.')",
    "pg_backend_pid()": "0",
    "pg_collation_is_visible(oid_)": "true",
    "pg_conversion_is_visible(oid_)": "true",
    "pg_encoding_to_char(encoding)": "'UTF8'",
    "pg_function_is_visible(oid_)": "true",
    "pg_get_constraintdef(oid_, pretty := false)": (
        f"(SELECT 'PRIMARY KEY ' || regexp_extract(own_index.indexdef, '\\(.*\\)$') FROM {_OWN_INDEX} + 1)"
    ),
    "pg_get_expr(expression, oid_, pretty := false)": "NULL::VARCHAR",
    "pg_get_function_arguments(oid_)": "NULL::VARCHAR",
    "pg_get_function_identity_arguments(oid_)": "NULL::VARCHAR",
    "pg_get_function_result(oid_)": "NULL::VARCHAR",
    "pg_get_indexdef(oid_, place := 0, pretty := false)": (
        "(SELECT CASE WHEN place > 0 THEN trim(string_split(regexp_extract(own_index.indexdef, "
        f"'\\((.*)\\)$', 1), ',')[place]) ELSE own_index.indexdef END FROM {_OWN_INDEX})"
    ),
    "pg_get_partkeydef(oid_)": "NULL::VARCHAR",
    "pg_get_ruledef(oid_, pretty := false)": "NULL::VARCHAR",
    "pg_get_serial_sequence(relation, col)": "NULL::VARCHAR",
    "pg_get_statisticsobjdef_columns(oid_)": "NULL::VARCHAR",
    "pg_get_triggerdef(oid_, pretty := false)": "NULL::VARCHAR",
    "pg_get_userbyid(oid_)": f"'{USER}'",
    "pg_get_viewdef(oid_, pretty := false)": f"(SELECT own_view.definition FROM {_OWN_VIEW})",
    "pg_is_in_recovery()": "false",
    "pg_is_other_temp_schema(oid_)": "false",
    "pg_my_temp_schema()": "0",
    "pg_opclass_is_visible(oid_)": "true",
    "pg_operator_is_visible(oid_)": "true",
    "pg_postmaster_start_time()": "now()",
    "pg_relation_is_publishable(oid_)": "false",
    "pg_relation_size(oid_)": "0",
    "pg_size_pretty(bytes_)": "bytes_ || ' bytes'",
    "pg_table_is_visible(oid_)": "true",
    "pg_table_size(oid_)": "0",
    "pg_total_relation_size(oid_)": "0",
    "pg_type_is_visible(oid_)": "true",
    "quote_ident(called)": (
        "CASE WHEN regexp_full_match(called, '[a-z_][a-z0-9_$]*') THEN called "
        "ELSE '\"' || replace(called, '\"', '\"\"') || '\"' END"
    ),
    "regclass_of(said)": f"(SELECT own_class.oid FROM {_CLASS} own_class WHERE own_class.relname = {_BARE})",
    "regnamespace_of(said)": (
        f"(SELECT own_space.oid FROM {_NAMESPACE} own_space WHERE own_space.nspname = said)"
    ),
    "regtype_of(said)": (
        f"CASE lower({_BARE}) "
        + " ".join(f"WHEN '{name}' THEN {oid}" for name, oid in TYPE_OIDS.items() if '"' not in name)
        + " ELSE NULL END"
    ),
    "session_user()": f"'{USER}'",
    "set_config(called, setting_, is_local)": "setting_",
    "shobj_description(oid_, catalog_ := '')": "NULL::VARCHAR",
    "to_regclass(said)": f"(SELECT own_class.oid FROM {_CLASS} own_class WHERE own_class.relname = {_BARE})",
    "to_regtype(said)": f"{PREFIX}regtype_of(said)",
    "to_timestamp(seconds)": "make_timestamp((seconds::DOUBLE * 1000000)::BIGINT)",
    "txid_current()": "1",
    "type_of(oid_)": (
        "CASE oid_ "
        + " ".join(f"WHEN {oid} THEN '{called}'" for oid, called in TYPE_NAMES.items())
        + " ".join(f" WHEN {array} THEN '{called}[]'" for *_, array, _, called in TYPES if array)
        + " WHEN NULL THEN NULL ELSE '???' END"
    ),
    "version()": f"'PostgreSQL {SERVER_VERSION} (Orderbook)'",
}
# Columns of pg_type that are of the type regproc: numbers that are shown as names.
_FUNCTION_COLUMNS = frozenset({"typinput", "typoutput", "typreceive", "typsend", "typsubscript"})
_FUNCTIONS = frozenset(head.partition("(")[0] for head in MACROS)


def macro_statements() -> Iterator[str]:
    """What gives DuckDB the functions that `PostgresCatalog.query` calls."""
    # Those that others call come first.
    heads = sorted(MACROS, key=lambda head: (not head.startswith(("type_of", "regtype_of")), head))
    return (f"CREATE OR REPLACE MACRO {PREFIX}{head} AS {MACROS[head]}" for head in heads)


def _in_duckdb(node: exp.Expr) -> exp.Expr:
    """What PostgreSQL alone has, as DuckDB says it; anything else as it is."""
    match node:
        case exp.Dot() if node.this.name.lower() == "pg_catalog" and isinstance(node.expression, exp.Func):
            return node.expression
        case exp.Table() if isinstance(node.this, exp.Func):
            return _function_in_from(node)
        case exp.Column() if node.args.get("db"):
            node.set("db", None)
            node.set("catalog", None)
        case exp.Column() if not node.table and node.name.lower() in (
            "current_catalog",
            "session_user",
            "user",
        ):
            return exp.Literal.string(DATABASE if node.name.lower() == "current_catalog" else USER)
        case exp.Collate():
            assert isinstance(node.this, exp.Expr)
            return node.this
        case exp.Operator():
            return _operator(node)
        case exp.EQ() | exp.NEQ() if _is_no_function(node):
            node.set("expression", exp.Literal.string("-"))
        case exp.Anonymous() if node.name.lower() in ("json_build_object", "jsonb_build_object"):
            return exp.Anonymous(this="json_object", expressions=node.expressions)
        case exp.Anonymous() if node.name.lower() in _FUNCTIONS:
            return exp.Anonymous(this=PREFIX + node.name.lower(), expressions=node.expressions)
        case exp.CurrentUser() | exp.SessionUser():
            return exp.Literal.string(USER)
        case exp.CurrentSchema():
            return exp.Literal.string(SCHEMA)
        case exp.CurrentDatabase() | exp.CurrentCatalog():
            return exp.Literal.string(DATABASE)
        case exp.CurrentVersion() | exp.Version() if hasattr(exp, "Version"):
            return exp.Literal.string(f"PostgreSQL {SERVER_VERSION} (Orderbook)")
        case exp.Cast():
            return _cast(node)
    return node


def _is_no_function(node: exp.Binary) -> bool:
    """Whether a function of a type is compared with 0, the number of none; names are here, and "-"."""
    left, right = node.this, node.expression
    named = isinstance(left, exp.Column) and left.name.lower() in _FUNCTION_COLUMNS
    return named and isinstance(right, exp.Literal) and not right.is_string and right.name == "0"


def _function_in_from(table: exp.Table) -> exp.Expr:
    """A function in FROM: its column has the name of the table, and one that gives a value gives one row."""
    table.set("db", None)
    alias = table.args.get("alias")
    if alias is None or alias.columns:
        return table
    name = table.alias
    if isinstance(table.this, exp.GenerateSeries | exp.Unnest):
        alias.set("columns", [exp.to_identifier(name)])
        return table
    value = exp.alias_(table.this, name)
    return exp.select(value).subquery(name)


def _operator(node: exp.Operator) -> exp.Expr:
    """OPERATOR(pg_catalog.~) and the like."""
    name = str(node.args.get("operator", "")).rpartition(".")[2]
    left, right = node.this, node.expression
    made: dict[str, Callable[[], exp.Expr]] = {
        "~": lambda: exp.RegexpLike(this=left, expression=right),
        "!~": lambda: exp.Not(this=exp.RegexpLike(this=left, expression=right)),
        "~*": lambda: exp.RegexpILike(this=left, expression=right),
        "=": lambda: exp.EQ(this=left, expression=right),
        "<>": lambda: exp.NEQ(this=left, expression=right),
        "~~": lambda: exp.Like(this=left, expression=right),
    }
    if name not in made:
        raise SqlError(f"the operator {name} is not known here")
    return made[name]()


_CASTS = {
    "oid": "BIGINT", "name": "TEXT", "char": "TEXT", "int2vector": "TEXT", "xid": "BIGINT",
    "regproc": "TEXT", "regprocedure": "TEXT", "cstring": "TEXT", "oidvector": "TEXT", "regrole": "TEXT",
    "sql_identifier": "TEXT", "aclitem": "TEXT",
    "anyarray": "TEXT", "cardinal_number": "BIGINT", "character_data": "TEXT", "yes_or_no": "TEXT",
}  # fmt: skip
_REGISTERED = {
    "regclass": ("regclass_of", "class_of"),
    "regtype": ("regtype_of", "type_of"),
    "regnamespace": ("regnamespace_of", "namespace_of"),
}


def _cast(node: exp.Cast) -> exp.Expr:
    said, value = node.to.sql("postgres").lower(), node.this
    plain = said.replace("pg_catalog.", "").replace("information_schema.", "").replace('"', "")
    kind, array = plain.removesuffix("[]"), plain.endswith("[]")
    if kind in _REGISTERED and not array:
        is_text = isinstance(value, exp.Literal) and value.is_string
        if is_text and str(value.this).isdecimal():
            return exp.cast(value, "BIGINT")
        return exp.Anonymous(this=PREFIX + _REGISTERED[kind][0 if is_text else 1], expressions=[value])
    if kind == "oid" and isinstance(value, exp.Anonymous) and value.name.lower() == f"{PREFIX}class_of":
        # The number of a name that was a number.
        return exp.cast(value.expressions[0], "BIGINT")
    if kind in _CASTS:
        return exp.cast(value, _CASTS[kind] + ("[]" if array else ""))
    return exp.cast(value, plain, dialect="postgres") if "pg_catalog." in said else node
