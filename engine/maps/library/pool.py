"""Blocks of one size out of aligned slabs, which go back to the system when they are empty.

Slabs are mapped one by one: freeing a large heap block in one piece can pause for milliseconds.
The ring of slabs keeps those with a free block first, so taking and giving are O(1).
"""

from orderbook.core.jit import jit
from orderbook.engine.maps.memory import (
    MAP_FLAGS,
    PROTECTION,
    abort,
    exported,
    load,
    memory_map,
    memory_unmap,
    store,
)
from orderbook.engine.maps.store_layout import (
    BLOCK_BYTES,
    CAPACITY,
    FREE,
    FRESH,
    LIVE,
    NEXT,
    PREVIOUS,
    SLAB,
    SLAB_BYTES,
    SLAB_COUNT,
    SLAB_HEADER_BYTES,
)


@exported
def pool_open(pool, block_words):
    """Set up an empty pool of blocks of `block_words` words."""
    block_bytes = 8 * block_words
    slab_bytes = 65536
    while slab_bytes < 8 * block_bytes:
        slab_bytes *= 2
    capacity = 0
    room = slab_bytes - SLAB_HEADER_BYTES
    while (capacity + 1) * block_bytes <= room:
        capacity += 1
    store(pool, BLOCK_BYTES, block_bytes)
    store(pool, SLAB, 0)
    store(pool, SLAB_COUNT, 0)
    store(pool, SLAB_BYTES, slab_bytes)
    store(pool, CAPACITY, capacity)
    return 0


@jit()
def map_aligned(size, hint):
    """`size` fresh bytes aligned to `size`, at `hint` if the system agrees."""
    address = memory_map(hint, size, PROTECTION, MAP_FLAGS, -1, 0)
    if address == -1:
        abort()
    if address & (size - 1) == 0:
        return address
    memory_unmap(address, size)
    address = memory_map(0, 2 * size, PROTECTION, MAP_FLAGS, -1, 0)
    if address == -1:
        abort()
    aligned = (address + size - 1) & -size
    if aligned > address:
        memory_unmap(address, aligned - address)
    if aligned < address + size:
        memory_unmap(aligned + size, address + size - aligned)
    return aligned


@jit()
def link_first(pool, slab):
    """Put a slab at the head of the ring."""
    head = load(pool, SLAB)
    if head == 0:
        store(slab, NEXT, slab)
        store(slab, PREVIOUS, slab)
    else:
        last = load(head, PREVIOUS)
        store(slab, NEXT, head)
        store(slab, PREVIOUS, last)
        store(head, PREVIOUS, slab)
        store(last, NEXT, slab)
    store(pool, SLAB, slab)


@jit()
def unlink_slab(pool, slab):
    """Take a slab, not the only one, out of the ring."""
    after = load(slab, NEXT)
    before = load(slab, PREVIOUS)
    store(before, NEXT, after)
    store(after, PREVIOUS, before)
    if load(pool, SLAB) == slab:
        store(pool, SLAB, after)


@exported
def pool_take(pool):
    """The address of a block; its words hold anything."""
    slab = load(pool, SLAB)
    capacity = load(pool, CAPACITY)
    if slab == 0 or load(slab, LIVE) == capacity:
        size = load(pool, SLAB_BYTES)
        slab = map_aligned(size, slab - size if slab != 0 else 0)
        store(slab, FRESH, slab + SLAB_HEADER_BYTES)
        link_first(pool, slab)
        store(pool, SLAB_COUNT, load(pool, SLAB_COUNT) + 1)
    block = load(slab, FREE)
    if block != 0:
        store(slab, FREE, load(block, 0))
    else:
        block = load(slab, FRESH)
        store(slab, FRESH, block + load(pool, BLOCK_BYTES))
    live = load(slab, LIVE) + 1
    store(slab, LIVE, live)
    if live == capacity:
        store(pool, SLAB, load(slab, NEXT))
    return block


@exported
def pool_give(pool, block):
    """Give a block back; an emptied slab is unmapped unless no other has a free block."""
    size = load(pool, SLAB_BYTES)
    slab = block & -size
    store(block, 0, load(slab, FREE))
    store(slab, FREE, block)
    live = load(slab, LIVE) - 1
    store(slab, LIVE, live)
    capacity = load(pool, CAPACITY)
    if live == capacity - 1:
        if load(slab, NEXT) != slab:
            unlink_slab(pool, slab)
            link_first(pool, slab)
    elif live == 0:
        head = load(pool, SLAB)
        other = load(slab, NEXT) if head == slab else head
        if other != slab and load(other, LIVE) < capacity:
            unlink_slab(pool, slab)
            memory_unmap(slab, size)
            store(pool, SLAB_COUNT, load(pool, SLAB_COUNT) - 1)
    return 0


@exported
def pool_close(pool):
    """Give every slab back, whatever lives in it."""
    head = load(pool, SLAB)
    size = load(pool, SLAB_BYTES)
    slab = head
    while slab != 0:
        after = load(slab, NEXT)
        memory_unmap(slab, size)
        slab = after if after != head else 0
    store(pool, SLAB, 0)
    store(pool, SLAB_COUNT, 0)
    return 0


@exported
def pool_clear(pool):
    """Give every block back, and every slab but one: what is filled again soon needs no fresh memory."""
    kept = load(pool, SLAB)
    if kept == 0:
        return 0
    slab = load(kept, NEXT)
    while slab != kept:
        after = load(slab, NEXT)
        memory_unmap(slab, load(pool, SLAB_BYTES))
        slab = after
    store(kept, LIVE, 0)
    store(kept, FREE, 0)
    store(kept, FRESH, kept + SLAB_HEADER_BYTES)
    store(kept, NEXT, kept)
    store(kept, PREVIOUS, kept)
    store(pool, SLAB_COUNT, 1)
    return 0


@exported
def pool_bytes(pool):
    """Bytes mapped by the pool."""
    return load(pool, SLAB_COUNT) * load(pool, SLAB_BYTES)
