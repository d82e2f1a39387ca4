"""The hash index and its slab pools, compiled once for all shapes; see library/index.py, library/pool.py.

They are published when generated code first imports this module: until then nothing is compiled.
"""

from pathlib import Path
from types import ModuleType

from orderbook.core.generated_code import publish


def publish_library(name: str) -> ModuleType:
    """The published copy of `library/<name>.py`."""
    return publish(name, (Path(__file__).parent / "library" / f"{name}.py").read_text())


_pool = publish_library("pool")
pool_open = _pool.pool_open
pool_take = _pool.pool_take
pool_give = _pool.pool_give
pool_clear = _pool.pool_clear
pool_close = _pool.pool_close
pool_bytes = _pool.pool_bytes

# The index imports the names above from this module.
_index = publish_library("index")
index_open = _index.index_open
index_clear = _index.index_clear
index_close = _index.index_close
index_insert = _index.index_insert
index_remove = _index.index_remove
index_first = _index.index_first
index_next = _index.index_next
index_bytes = _index.index_bytes
