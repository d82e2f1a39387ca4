"""Which program a state belongs to: a hash of all that says what its maps and rows hold."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from views.compiler.m3_text.m3_print import program_text
from views.compiler.program import CompiledProgram

# Of EngineState: another one makes every older checkpoint one of another program.
STATE_FORMAT = 1


def program_hash(program: CompiledProgram) -> bytes:
    """32 bytes, equal for programs that hold the same in the same way.

    Of the M3 text (maps, triggers, views, declared relations in their order, with intervals, max_rows and
    RETAIN), the parameters, and the format of states. Where SQL stands and where streams come from
    (SOURCE) do not count, nor comments and layout, which no M3 has.
    """
    digest = hashlib.sha256()
    for part in _parts(program):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


def _parts(program: CompiledProgram) -> Iterator[str]:
    yield f"state {STATE_FORMAT}"
    relations = tuple(replace(r, source=None) for r in program.program.relations)
    yield program_text(replace(program.program, relations=relations))
    for name, value in sorted(program.parameters.items()):
        yield f"{name} {type(value).__name__} {value!r}"
