"""The table of a configuration that says where Spark runs, and what it is given."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from orderbook.option_types import File, Section, Size, Text, matching

_MASTER = r"local(\[.*\])?|local-cluster\[.*\]|(spark|sc|k8s)://.+|yarn"


def _flat(value: Any, prefix: str = "") -> Any:
    """TOML's dotted keys are nested tables; Spark's properties are flat names."""
    if not isinstance(value, Mapping):
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        nested = _flat(inner, f"{prefix}{key}.")
        flat.update(nested if isinstance(nested, Mapping) else {prefix + key: nested})
    return flat


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value


def _named(properties: dict[str, str]) -> dict[str, str]:
    if all(name.startswith("spark.") for name in properties):
        return properties
    raise PydanticCustomError("property", 'properties whose names begin with "spark."')


Properties = Annotated[
    dict[str, Annotated[str, BeforeValidator(_text)]], BeforeValidator(_flat), AfterValidator(_named)
]


class SparkOptions(Section):
    """Where Spark runs: `master` is "local[N]", "local-cluster[…]", "spark://…", "yarn", "k8s://…" or "sc://…".

    `memory` is the JVM's heap on this machine, `folder` where temporary files go (None: the system's), `log`
    the file of Spark's messages (None: one that goes with the process), `java` the home of a Java 17 to 25
    (None: one that is found), `python` the interpreter on a cluster's machines (None: `python3` there, and
    this one on this machine). `properties` are handed to Spark as they are, over everything else.
    """

    master: Annotated[
        str, matching(_MASTER, '"local[N]", "local-cluster[…]", "spark://…", "yarn", "k8s://…" or "sc://…"')
    ] = "local[*]"
    memory: Size = "2 GB"
    folder: File | None = None
    log: File | None = None
    java: File | None = None
    python: Text | None = None
    properties: Annotated[Properties, Field(strict=False)] = Field(default_factory=dict)
