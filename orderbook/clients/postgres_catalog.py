"""The catalog that clients of PostgreSQL look into, as tables: what there is of views and relations.

Source: PostgreSQL's documentation, chapters "System Catalogs" and "The Information Schema".
"""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orderbook.views.types import Kind, Type

if TYPE_CHECKING:
    import pyarrow as pa

DATABASE, SCHEMA, USER = "orderbook", "public", "orderbook"
# What clients are told that they talk to; the features that they then ask for are those of this version.
SERVER_VERSION = "15.0"
_SERVER_NUMBER = 150_000
PREFIX = "catalog_"
_FIRST_OID = 16_384
# The numbers of indexes, above those of tables.
_INDEXES = 1 << 30
_NAMESPACES = {"pg_catalog": 11, "public": 2200, "information_schema": 13_000}
_OWNER, _DATABASE_OID = 10, 5
# What SHOW, current_setting and pg_settings tell.
SETTINGS = {
    "server_version": SERVER_VERSION,
    "server_version_num": str(_SERVER_NUMBER),
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "search_path": SCHEMA,
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "standard_conforming_strings": "on",
    "integer_datetimes": "on",
    "bytea_output": "hex",
    "max_index_keys": "32",
    "max_identifier_length": "63",
    "transaction_isolation": "repeatable read",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
}

# name, oid, bytes, array's oid, category, as PostgreSQL's pg_type has them, and how SQL calls it.
TYPES = (
    ("bool", 16, 1, 1000, "B", "boolean"),
    ("bytea", 17, -1, 1001, "U", "bytea"),
    ("char", 18, 1, 1002, "Z", '"char"'),
    ("name", 19, 64, 1003, "S", "name"),
    ("int8", 20, 8, 1016, "N", "bigint"),
    ("int2", 21, 2, 1005, "N", "smallint"),
    ("int4", 23, 4, 1007, "N", "integer"),
    ("text", 25, -1, 1009, "S", "text"),
    ("oid", 26, 4, 1028, "N", "oid"),
    ("json", 114, -1, 199, "U", "json"),
    ("float4", 700, 4, 1021, "N", "real"),
    ("float8", 701, 8, 1022, "N", "double precision"),
    ("unknown", 705, -2, 0, "X", "unknown"),
    ("bpchar", 1042, -1, 1014, "S", "character"),
    ("varchar", 1043, -1, 1015, "S", "character varying"),
    ("date", 1082, 4, 1182, "D", "date"),
    ("time", 1083, 8, 1183, "D", "time without time zone"),
    ("timestamp", 1114, 8, 1115, "D", "timestamp without time zone"),
    ("timestamptz", 1184, 8, 1185, "D", "timestamp with time zone"),
    ("interval", 1186, 16, 1187, "T", "interval"),
    ("numeric", 1700, -1, 1231, "N", "numeric"),
    ("regclass", 2205, 4, 2210, "N", "regclass"),
    ("regtype", 2206, 4, 2211, "N", "regtype"),
    ("uuid", 2950, 16, 2951, "U", "uuid"),
    ("jsonb", 3802, -1, 3807, "U", "jsonb"),
)
# Drivers of Arrow know types by their functions; those of these have an underscore, as `date_in`.
_UNDERSCORED = frozenset(
    {"date", "interval", "json", "jsonb", "numeric", "time", "timestamp", "timestamptz", "uuid"}
)
TYPE_OIDS = {name: oid for name, oid, *_ in TYPES} | {called: oid for _, oid, *_, called in TYPES}
_SIZES = {oid: size for _, oid, size, *_ in TYPES}
TYPE_NAMES = {oid: called for _, oid, *_, called in TYPES}


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalog tells of it."""

    name: str
    type: Type
    nullable: bool = True

    @property
    def oid(self) -> int:
        """The type in PostgreSQL."""
        kinds = {
            Kind.BOOLEAN: 16,
            Kind.INTEGER: 20,
            Kind.DOUBLE: 701,
            Kind.TIMESTAMP: 1184,
            Kind.DECIMAL: 1700,
        }
        return kinds.get(self.type.kind, 25)

    @property
    def modifier(self) -> int:
        """Of a numeric its precision and scale as pg_attribute has them, else -1."""
        return ((38 << 16) | self.type.scale) + 4 if self.type.kind is Kind.DECIMAL else -1


@dataclass(frozen=True, slots=True)
class Table:
    """A view or relation as the catalog tells of it."""

    name: str
    is_view: bool
    columns: tuple[Column, ...]
    sql: str = ""
    # The places of the primary key's columns, from 1, in their order.
    key: tuple[int, ...] = ()

    @property
    def oid(self) -> int:
        """A number of its own, the same at every start."""
        return _FIRST_OID + (zlib.crc32(self.name.encode()) & 0x3FFF_FFFF)

    @property
    def index(self) -> tuple[int, str]:
        """The number and the name of the index that a primary key has in PostgreSQL."""
        return self.oid + _INDEXES, f"{self.name}_pkey"

    @property
    def index_sql(self) -> str:
        """What made that index."""
        columns = ", ".join(_quoted(self.columns[place - 1].name) for place in self.key)
        _, name = self.index
        return f"CREATE UNIQUE INDEX {_quoted(name)} ON {SCHEMA}.{_quoted(self.name)} USING btree ({columns})"


def _quoted(name: str) -> str:
    """A name as SQL has it."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_$]*", name) else '"' + name.replace('"', '""') + '"'


_Rows = list[tuple[object, ...]]


def catalog_tables(tables: Sequence[Table]) -> Iterator[tuple[str, "pa.Table"]]:
    """Every table of the catalog by its name, those of the information schema with that before it."""
    yield from _server_tables()
    yield from _relation_tables(tables)
    yield from _key_tables([t for t in tables if t.key])
    yield from ((name, _table(columns, [])) for name, columns in _EMPTY.items())
    yield from _information_schema(tables, {t.name: t.key for t in tables if t.key})


def _server_tables() -> Iterator[tuple[str, "pa.Table"]]:
    """What is the same whatever tables there are: namespaces, types, roles and settings."""
    yield (
        "pg_namespace",
        _table(
            "oid:i nspname nspowner:i nspacl:a",
            [(oid, name, _OWNER, None) for name, oid in _NAMESPACES.items()],
        ),
    )
    yield (
        "pg_type",
        _table(
            "oid:i typname typnamespace:i typowner:i typlen:i typbyval:b typtype typcategory "
            "typispreferred:b "
            "typisdefined:b typdelim typrelid:i typelem:i typarray:i typinput typoutput typreceive typsend "
            "typnotnull:b "
            "typbasetype:i typtypmod:i typndims:i typcollation:i typdefault typacl:a typalign typstorage "
            "typsubscript",
            [row for one in TYPES for row in _type_rows(*one)],
        ),
    )
    yield (
        "pg_database",
        _table(
            "oid:i datname datdba:i encoding:i datlocprovider datistemplate:b datallowconn:b datconnlimit:i "
            "datcollate "
            "datctype daticulocale datcollversion dattablespace:i datacl:a datlastsysoid:i",
            [(_DATABASE_OID, DATABASE, _OWNER, 6, "c", False, True, -1, "C", "C", None, None, 0, None, 0)],
        ),
    )
    yield (
        "pg_roles",
        _table(
            "oid:i rolname rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b "
            "rolreplication:b "
            "rolconnlimit:i rolpassword rolvaliduntil rolbypassrls:b rolconfig:a",
            [(_OWNER, USER, False, True, False, False, True, False, -1, None, None, False, None)],
        ),
    )
    yield (
        "pg_user",
        _table(
            "usename usesysid:i usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd valuntil "
            "useconfig:a",
            [(USER, _OWNER, False, False, False, False, None, None, None)],
        ),
    )
    yield "pg_am", _table("oid:i amname amhandler amtype", [(2, "heap", "", "t"), (403, "btree", "", "i")])
    yield (
        "pg_settings",
        _table(
            "name setting unit category short_desc context vartype source",
            [(name, value, None, "", "", "user", "string", "default") for name, value in SETTINGS.items()],
        ),
    )


def _relation_tables(tables: Sequence[Table]) -> Iterator[tuple[str, "pa.Table"]]:
    """Tables, views, indexes and columns."""
    kinds = [(t.oid, t.name, "v" if t.is_view else "r", bool(t.key), len(t.columns)) for t in tables]
    kinds += [(*t.index, "i", False, len(t.key)) for t in tables if t.key]
    yield "pg_class", _table(
        "oid:i relname relnamespace:i reltype:i reloftype:i relowner:i relam:i relfilenode:i reltablespace:i "
        "relpages:i reltuples:d relallvisible:i reltoastrelid:i relhasindex:b relisshared:b relpersistence "
        "relkind "
        "relnatts:i relchecks:i relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b "
        "relforcerowsecurity:b relispopulated:b relreplident relispartition:b relacl:a reloptions:a "
        "relpartbound "
        "relhasoids:b",
        [
            (
                oid, name, 2200, 0, 0, _OWNER, 403 if kind == "i" else 0, oid, 0, 0, -1.0, 0, 0, indexed,
                False, "p", kind,
                count, 0, kind == "v", False, False, False, False, True, "n", False, None, None,
                None, False,
            )
            for oid, name, kind, indexed, count in kinds
        ],
    )  # fmt: skip
    numbered = [(t, place, c) for t in tables for place, c in enumerate(t.columns, 1)]
    yield "pg_attribute", _table(
        "attrelid:i attname atttypid:i attstattarget:i attlen:i attnum:i attndims:i attcacheoff:i "
        "atttypmod:i "
        "attbyval:b attstorage attalign attnotnull:b atthasdef:b atthasmissing:b attidentity attgenerated "
        "attisdropped:b attislocal:b attinhcount:i attcollation:i attacl:a attoptions:a attfdwoptions:a "
        "attcompression",
        [
            (
                t.oid, c.name, c.oid, -1, _SIZES[c.oid], place, 0, -1, c.modifier, _SIZES[c.oid] > 0, "p",
                "i",
                not c.nullable, False, False, "", "", False, True, 0, 100 if c.oid == 25 else 0, None, None,
                None, "",
            )
            for t, place, c in numbered
        ],
    )  # fmt: skip
    yield (
        "pg_tables",
        _table(
            "schemaname tablename tableowner tablespace hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
            [(SCHEMA, t.name, USER, None, bool(t.key), False, False, False) for t in tables if not t.is_view],
        ),
    )
    yield (
        "pg_views",
        _table(
            "schemaname viewname viewowner definition oid:i",
            [(SCHEMA, t.name, USER, t.sql, t.oid) for t in tables if t.is_view],
        ),
    )


def _key_tables(keyed: Sequence[Table]) -> Iterator[tuple[str, "pa.Table"]]:
    """Indexes and constraints of tables that have a key."""
    yield (
        "pg_index",
        _table(
            "indexrelid:i indrelid:i indnatts:i indnkeyatts:i indisunique:b indisprimary:b indisexclusion:b "
            "indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b "
            "indisreplident:b "
            "indkey:l indcollation:l indclass:l indoption:l indexprs indpred indnullsnotdistinct:b",
            [
                (
                    t.index[0],
                    t.oid,
                    len(t.key),
                    len(t.key),
                    True,
                    True,
                    False,
                    True,
                    False,
                    True,
                    False,
                    True,
                    True,
                    False,
                    t.key,
                    *([[0] * len(t.key)] * 3),
                    None,
                    None,
                    False,
                )
                for t in keyed
            ],
        ),
    )
    yield (
        "pg_indexes",
        _table(
            "schemaname tablename indexname tablespace indexdef indexrelid:i",
            [(SCHEMA, t.name, t.index[1], None, t.index_sql, t.index[0]) for t in keyed],
        ),
    )
    yield "pg_constraint", _table(
        "oid:i conname connamespace:i contype condeferrable:b condeferred:b convalidated:b conrelid:i "
        "contypid:i "
        "conindid:i conparentid:i confrelid:i confupdtype confdeltype confmatchtype conislocal:b "
        "coninhcount:i "
        "connoinherit:b conkey:l confkey:l conpfeqop:l conppeqop:l conffeqop:l conexclop:l conbin consrc",
        [
            (
                t.index[0] + 1, t.index[1], 2200, "p", False, False, True, t.oid, 0, t.index[0], 0, 0, " ",
                " ", " ", True, 0, True, t.key, None, None, None, None, None, None, None,
            )
            for t in keyed
        ],
    )  # fmt: skip


def _type_rows(
    name: str, oid: int, size: int, array: int, category: str, _: str
) -> Iterator[tuple[object, ...]]:
    def row(name: str, oid: int, size: int, category: str, element: int, array: int) -> tuple[object, ...]:
        read = "array_" if element else f"{name}_" if name in _UNDERSCORED else name
        return (
            oid, name, 11, _OWNER, size, 0 < size <= 8, "b", category, False, True, ",", 0, element, array,
            f"{read}in", f"{read}out", f"{read}recv", f"{read}send", False, 0, -1, 0, 0, None, None,
            "i", "p",
            "array_subscript_handler" if element else "-",
        )  # fmt: skip

    yield row(name, oid, size, category, 0, array)
    if array:
        yield row(f"_{name}", array, -1, "A", oid, 0)


def _information_schema(
    tables: Sequence[Table], keys: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, "pa.Table"]]:
    yield (
        "information_schema_schemata",
        _table(
            "catalog_name schema_name schema_owner",
            [(DATABASE, name, USER) for name in _NAMESPACES],
        ),
    )
    yield (
        "information_schema_tables",
        _table(
            "table_catalog table_schema table_name table_type is_insertable_into is_typed",
            [(DATABASE, SCHEMA, t.name, "VIEW" if t.is_view else "BASE TABLE", "NO", "NO") for t in tables],
        ),
    )
    yield (
        "information_schema_views",
        _table(
            "table_catalog table_schema table_name view_definition check_option is_updatable",
            [(DATABASE, SCHEMA, t.name, t.sql, "NONE", "NO") for t in tables if t.is_view],
        ),
    )
    yield "information_schema_columns", _table(
        "table_catalog table_schema table_name column_name ordinal_position:i column_default is_nullable "
        "data_type "
        "character_maximum_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i "
        "datetime_precision:i udt_catalog udt_schema udt_name is_identity is_generated is_updatable",
        [
            (
                DATABASE, SCHEMA, t.name, c.name, place, None, "YES" if c.nullable else "NO",
                TYPE_NAMES[c.oid], None,
                *_numeric(c), 6 if c.oid == 1184 else None, DATABASE, "pg_catalog", _type_name(c.oid), "NO",
                "NEVER",
                "NO",
            )
            for t in tables
            for place, c in enumerate(t.columns, 1)
        ],
    )  # fmt: skip
    yield (
        "information_schema_table_constraints",
        _table(
            "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name "
            "constraint_type",
            [(DATABASE, SCHEMA, f"{name}_pkey", DATABASE, SCHEMA, name, "PRIMARY KEY") for name in keys],
        ),
    )
    columns = {t.name: t.columns for t in tables}
    used = [
        (name, columns[name][place - 1].name, n)
        for name, own in keys.items()
        for n, place in enumerate(own, 1)
    ]
    yield (
        "information_schema_key_column_usage",
        _table(
            "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name "
            "column_name "
            "ordinal_position:i",
            [
                (DATABASE, SCHEMA, f"{name}_pkey", DATABASE, SCHEMA, name, column, n)
                for name, column, n in used
            ],
        ),
    )


def _numeric(column: Column) -> tuple[int | None, int | None, int | None]:
    """Precision, radix and scale of a number."""
    return {1700: (38, 10, column.type.scale), 20: (64, 2, 0), 701: (53, 2, None)}.get(
        column.oid, (None,) * 3
    )


def _type_name(oid: int) -> str:
    return next(name for name, own, *_ in TYPES if own == oid)


# Catalogs that have nothing of ours, with the columns that clients ask for.
_EMPTY = {
    "pg_attrdef": "oid:i adrelid:i adnum:i adbin",
    "pg_auth_members": "oid:i roleid:i member:i grantor:i admin_option:b inherit_option:b set_option:b",
    "pg_collation": "oid:i collname collnamespace:i collcollate collctype collprovider collisdeterministic:b",
    "pg_depend": "classid:i objid:i objsubid:i refclassid:i refobjid:i refobjsubid:i deptype",
    "pg_description": "objoid:i classoid:i objsubid:i description",
    "pg_enum": "oid:i enumtypid:i enumsortorder:d enumlabel",
    "pg_event_trigger": "oid:i evtname evtevent",
    "pg_extension": "oid:i extname extowner:i extnamespace:i extrelocatable:b extversion",
    "pg_foreign_data_wrapper": "oid:i fdwname",
    "pg_foreign_server": "oid:i srvname srvfdw:i srvoptions:a",
    "pg_foreign_table": "ftrelid:i ftserver:i ftoptions:a",
    "pg_inherits": "inhrelid:i inhparent:i inhseqno:i inhdetachpending:b",
    "pg_language": "oid:i lanname",
    "pg_locks": "pid:i mode locktype relation:i granted:b",
    "pg_matviews": "schemaname matviewname matviewowner tablespace hasindexes:b ispopulated:b definition",
    "pg_opclass": "oid:i opcname opcmethod:i opcdefault:b",
    "pg_operator": "oid:i oprname oprnamespace:i",
    "pg_partitioned_table": "partrelid:i partstrat partnatts:i partattrs:l partdefid:i partexprs",
    "pg_policy": "oid:i polname polrelid:i polcmd polpermissive:b polroles:l polqual polwithcheck",
    "pg_proc": "oid:i proname pronamespace:i proowner:i prokind prorettype:i proretset:b proargtypes:l "
    "proargnames:a "
    "prosrc provolatile prolang:i pronargs:i",
    "pg_publication": "oid:i pubname puballtables:b",
    "pg_publication_namespace": "oid:i pnpubid:i pnnspid:i",
    "pg_publication_rel": "oid:i prpubid:i prrelid:i prqual prattrs:l",
    "pg_range": "rngtypid:i rngsubtype:i rngmultitypid:i",
    "pg_rewrite": "oid:i rulename ev_class:i ev_type ev_enabled is_instead:b",
    "pg_sequence": "seqrelid:i seqtypid:i seqstart:i seqincrement:i seqmax:i seqmin:i seqcache:i seqcycle:b",
    "pg_sequences": "schemaname sequencename",
    "pg_shdescription": "objoid:i classoid:i description",
    "pg_stat_activity": "datid:i datname pid:i usename application_name client_addr state query",
    "pg_stat_user_tables": "relid:i schemaname relname seq_scan:i n_live_tup:i",
    "pg_statio_user_tables": "relid:i schemaname relname",
    "pg_statistic_ext": "oid:i stxrelid:i stxname stxnamespace:i stxkind:a stxstattarget:i",
    "pg_tablespace": "oid:i spcname spcowner:i",
    "pg_timezone_names": "name abbrev utc_offset is_dst:b",
    "pg_trigger": "oid:i tgrelid:i tgparentid:i tgname tgfoid:i tgtype:i tgenabled tgisinternal:b "
    "tgconstraint:i "
    "tgdeferrable:b tginitdeferred:b",
    "information_schema_referential_constraints": "constraint_catalog constraint_schema constraint_name "
    "unique_constraint_schema unique_constraint_name",
    "information_schema_routines": "specific_schema specific_name routine_schema routine_name routine_type "
    "data_type",
    "information_schema_sequences": "sequence_schema sequence_name",
    "information_schema_triggers": "trigger_schema trigger_name event_object_table",
}  # fmt: skip


def _table(columns: str, rows: _Rows) -> "pa.Table":
    """A table of columns, each NAME or NAME:TYPE: i(nteger), d(ouble), b(oolean), a: texts, l:
    integers."""
    # The settings above are read where there is no Arrow.
    import pyarrow as pa

    kinds = {
        "i": pa.int64(),
        "d": pa.float64(),
        "b": pa.bool_(),
        "a": pa.list_(pa.string()),
        "l": pa.list_(pa.int64()),
        "": pa.string(),
    }
    made = {}
    for place, said in enumerate(columns.split()):
        name, _, kind = said.partition(":")
        made[name] = pa.array([row[place] for row in rows], kinds[kind])
    return pa.table(made)
