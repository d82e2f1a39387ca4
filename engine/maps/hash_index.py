"""The hash index, and the pools of slabs that its entries and segments and the nodes of trees lie in.

Extendible hashing (Fagin et al., TODS 1979). A directory points to segments of slots; the high bits of a hash
choose the segment, the low 15 bits (the tag kept in the slot) the place in it, linear probing from there. A
segment splits or merges alone, so the largest pause is one segment or one copy of the directory. Entries
never move. If hashes collide so that splitting would only blow up the directory, the segment grows instead.

A pool gives blocks of one size out of aligned slabs, which go back to the system when they are empty. Slabs
are mapped one by one: freeing a large heap block in one piece can pause for milliseconds. The ring of slabs
keeps those with a free block first, so taking and giving are O(1).

It is compiled once for all shapes, when generated code first imports it: nothing else does.
"""

from orderbook.core.jit import exported, jit
from orderbook.engine.maps.memory import (
    MAP_FLAGS,
    PROTECTION,
    abort,
    calloc,
    high_bits,
    load,
    memory_map,
    memory_unmap,
    mix,
    release,
    store,
)
from orderbook.engine.maps.store_layout import (
    ADDRESS,
    ADDRESS_BITS,
    BLOCK_BYTES,
    CAPACITY,
    DEPTHS,
    DIRECTORY,
    ENTRY_POOL,
    ENTRY_WORDS,
    FREE,
    FRESH,
    FULL_LOG,
    GIVEN_BACK,
    HEAP_BYTES,
    KEY_WORDS,
    LIVE,
    NEXT,
    PREVIOUS,
    SEED,
    SEGMENT_POOL,
    SEGMENTS,
    SHIFT,
    SIZE,
    SLAB,
    SLAB_BYTES,
    SLAB_COUNT,
    SLAB_HEADER_BYTES,
    SLOTS,
    SMALLEST_LOG,
    TAG,
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
def slab_count(pool):
    """How many slabs there are."""
    return load(pool, SLAB_COUNT) & (GIVEN_BACK - 1)


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


@jit()
def take_block(pool):
    """See pool_take."""
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
def pool_take(pool):
    """The address of a block; its words hold anything."""
    return take_block(pool)


@jit()
def give_block(pool, block):
    """See pool_give."""
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
            store(pool, SLAB_COUNT, load(pool, SLAB_COUNT) - 1 + GIVEN_BACK)


@exported
def pool_give(pool, block):
    """Give a block back; an emptied slab is unmapped unless no other has a free block."""
    give_block(pool, block)
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
    store(pool, SLAB_COUNT, load(pool, SLAB_COUNT) - slab_count(pool) + GIVEN_BACK)
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
    store(pool, SLAB_COUNT, load(pool, SLAB_COUNT) - slab_count(pool) + 1 + GIVEN_BACK)
    return 0


@exported
def pool_bytes(pool):
    """Bytes mapped by the pool."""
    return slab_count(pool) * load(pool, SLAB_BYTES)


@jit()
def add_to(address, index, amount):
    store(address, index, load(address, index) + amount)


@jit()
def heap_take(H, words):
    """Zeroed words from the heap, accounted in the header."""
    address = calloc(words, 8)
    if address == 0:
        abort()
    add_to(H, HEAP_BYTES, 8 * words)
    return address


@jit()
def heap_give(H, address, words):
    release(address)
    add_to(H, HEAP_BYTES, -8 * words)


@jit()
def new_segment(H, log, local_depth):
    """An empty segment of 2^log slots; those of the usual full size are pooled."""
    words = SLOTS + (1 << log)
    if log == FULL_LOG:
        segment = pool_take(H + 8 * SEGMENT_POOL)
        for i in range(words):
            store(segment, i, 0)
    else:
        segment = heap_take(H, words)
    store(segment, 1, local_depth)
    return segment


@jit()
def drop_segment(H, segment, log):
    if log == FULL_LOG:
        pool_give(H + 8 * SEGMENT_POOL, segment)
    else:
        heap_give(H, segment, SLOTS + (1 << log))


@jit()
def place(segment, log, slot):
    """Write a slot word into the first free slot from its home on."""
    mask = (1 << log) - 1
    at = (slot >> ADDRESS_BITS) & mask
    while load(segment, SLOTS + at) != 0:
        at = (at + 1) & mask
    store(segment, SLOTS + at, slot)
    store(segment, 0, load(segment, 0) + 1)


@jit()
def entry_hash(H, entry):
    h = SEED
    for i in range(load(H, KEY_WORDS)):
        h = mix(h, load(entry, i))
    return high_bits(h, 1)


@jit()
def segment_word(H, h):
    return load(load(H, DIRECTORY), h >> load(H, SHIFT))


@jit()
def set_directory(H, h, local_depth, word):
    """Point all directory places that share the first `local_depth` bits of `h` to one segment."""
    span = 1 << (63 - load(H, SHIFT) - local_depth)
    directory = load(H, DIRECTORY)
    first = (h >> load(H, SHIFT)) & -span
    for i in range(first, first + span):
        store(directory, i, word)


@jit()
def resize_directory(H, depth):
    """Double or halve the directory to 2^depth places."""
    old = load(H, DIRECTORY)
    old_depth = 63 - load(H, SHIFT)
    new = heap_take(H, 1 << depth)
    for i in range(1 << depth):
        store(new, i, load(old, i >> 1 if depth > old_depth else i << 1))
    heap_give(H, old, 1 << old_depth)
    store(H, DIRECTORY, new)
    store(H, SHIFT, 63 - depth)


@jit()
def resize_segment(H, h, new_log):
    word = segment_word(H, h)
    segment = word & ADDRESS
    log = word >> ADDRESS_BITS
    local_depth = load(segment, 1)
    new = new_segment(H, new_log, local_depth)
    for i in range(1 << log):
        slot = load(segment, SLOTS + i)
        if slot != 0:
            place(new, new_log, slot)
    drop_segment(H, segment, log)
    set_directory(H, h, local_depth, (new_log << ADDRESS_BITS) | new)


@jit()
def split_segment(H, h):
    """Share a full-size segment's entries out to two by the next bit of their hashes."""
    segment = segment_word(H, h) & ADDRESS
    local_depth = load(segment, 1)
    bit = 62 - local_depth
    zero = new_segment(H, FULL_LOG, local_depth + 1)
    one = new_segment(H, FULL_LOG, local_depth + 1)
    for i in range(1 << FULL_LOG):
        slot = load(segment, SLOTS + i)
        if slot != 0:
            side = (entry_hash(H, slot & ADDRESS) >> bit) & 1
            place(one if side else zero, FULL_LOG, slot)
    drop_segment(H, segment, FULL_LOG)
    note_split(H, h, local_depth, (FULL_LOG << ADDRESS_BITS) | zero, (FULL_LOG << ADDRESS_BITS) | one)


@jit()
def note_split(H, h, local_depth, zero, one):
    """Points the directory to the two segments, given as directory words, that were one of `local_depth`."""
    bit = 62 - local_depth
    if local_depth == 63 - load(H, SHIFT):
        resize_directory(H, local_depth + 1)
    add_to(H, SEGMENTS, 1)
    add_to(H, DEPTHS + local_depth, -1)
    add_to(H, DEPTHS + local_depth + 1, 2)
    set_directory(H, h & ~(1 << bit), local_depth + 1, zero)
    set_directory(H, h | (1 << bit), local_depth + 1, one)


@jit()
def can_split(H, local_depth):
    """Whether a segment of that depth may split without a directory that is large for what it points to."""
    depth = 63 - load(H, SHIFT)
    return local_depth < depth or (2 << depth) <= 16 * (load(H, SEGMENTS) + 4)


@jit()
def make_room(H, h, segment, log):
    local_depth = load(segment, 1)
    if log == FULL_LOG and can_split(H, local_depth) and local_depth < 46:
        split_segment(H, h)
    else:
        resize_segment(H, h, log + 1)


@jit()
def merge_segments(H, h, buddy):
    """Merge the segment of `h` with its buddy."""
    segment = segment_word(H, h) & ADDRESS
    local_depth = load(segment, 1)
    for i in range(1 << FULL_LOG):
        slot = load(buddy, SLOTS + i)
        if slot != 0:
            place(segment, FULL_LOG, slot)
    drop_segment(H, buddy, FULL_LOG)
    store(segment, 1, local_depth - 1)
    note_merge(H, h, local_depth, (FULL_LOG << ADDRESS_BITS) | segment)


@jit()
def note_merge(H, h, local_depth, word):
    """Points the directory to the segment that two of `local_depth` have become, and halves it as often as
    possible."""
    add_to(H, SEGMENTS, -1)
    add_to(H, DEPTHS + local_depth, -2)
    add_to(H, DEPTHS + local_depth - 1, 1)
    set_directory(H, h, local_depth - 1, word)
    depth = 63 - load(H, SHIFT)
    while depth > 0 and load(H, DEPTHS + depth) == 0:
        depth -= 1
        resize_directory(H, depth)


@jit()
def shrink(H, h):
    """Merge or halve the segment of `h` while it is nearly empty."""
    while True:
        word = segment_word(H, h)
        segment = word & ADDRESS
        log = word >> ADDRESS_BITS
        count = load(segment, 0)
        local_depth = load(segment, 1)
        if 8 * count > 1 << log:
            return
        if local_depth > 0 and log == FULL_LOG:
            depth = 63 - load(H, SHIFT)
            there = (h >> load(H, SHIFT)) ^ (1 << (depth - local_depth))
            buddy_word = load(load(H, DIRECTORY), there)
            buddy = buddy_word & ADDRESS
            full_size = buddy_word >> ADDRESS_BITS == FULL_LOG
            if not full_size or load(buddy, 1) != local_depth or 8 * (count + load(buddy, 0)) > 3 << FULL_LOG:
                return
            merge_segments(H, h, buddy)
        elif log > SMALLEST_LOG:
            resize_segment(H, h, log - 1)
        else:
            return


@jit()
def scan(H, position, at):
    """The first entry from slot `at` of the segment at a directory position on; 0 at the end."""
    depth = 63 - load(H, SHIFT)
    while position < 1 << depth:
        word = load(load(H, DIRECTORY), position)
        segment = word & ADDRESS
        slots = 1 << (word >> ADDRESS_BITS)
        while at < slots:
            slot = load(segment, SLOTS + at)
            if slot != 0:
                return slot & ADDRESS
            at += 1
        at = 0
        position += 1 << (depth - load(segment, 1))
    return 0


@jit()
def slot_of(H, h, entry):
    """The slot number of an entry that is there."""
    word = segment_word(H, h)
    segment = word & ADDRESS
    mask = (1 << (word >> ADDRESS_BITS)) - 1
    slot = ((h & TAG) << ADDRESS_BITS) | entry
    at = h & TAG & mask
    while load(segment, SLOTS + at) != slot:
        at = (at + 1) & mask
    return at


@jit()
def begin(H, word):
    """Write the directory of an empty index, with its only segment, given as a directory word."""
    store(H, SIZE, 0)
    store(H, SHIFT, 63)
    store(H, SEGMENTS, 1)
    for i in range(48):
        store(H, DEPTHS + i, 0)
    store(H, DEPTHS, 1)
    directory = heap_take(H, 1)
    store(directory, 0, word)
    store(H, DIRECTORY, directory)


@jit()
def drop_directory(H):
    """Give back what is not in the pools."""
    directory = load(H, DIRECTORY)
    depth = 63 - load(H, SHIFT)
    position = 0
    while position < 1 << depth:
        word = load(directory, position)
        segment = word & ADDRESS
        position += 1 << (depth - load(segment, 1))
        if word >> ADDRESS_BITS != FULL_LOG:
            heap_give(H, segment, SLOTS + (1 << (word >> ADDRESS_BITS)))
    heap_give(H, directory, 1 << depth)


@exported
def index_open(H, key_words, entry_words):
    """Set up an empty index in a zeroed header (or one that was closed)."""
    store(H, KEY_WORDS, key_words)
    store(H, ENTRY_WORDS, entry_words)
    pool_open(H + 8 * ENTRY_POOL, entry_words)
    pool_open(H + 8 * SEGMENT_POOL, SLOTS + (1 << FULL_LOG))
    begin(H, (SMALLEST_LOG << ADDRESS_BITS) | new_segment(H, SMALLEST_LOG, 0))
    return 0


@exported
def index_clear(H):
    """Remove every entry, and give back their memory but some for the next."""
    drop_directory(H)
    pool_clear(H + 8 * SEGMENT_POOL)
    pool_clear(H + 8 * ENTRY_POOL)
    begin(H, (SMALLEST_LOG << ADDRESS_BITS) | new_segment(H, SMALLEST_LOG, 0))
    return 0


@exported
def index_close(H):
    """Give all memory of the index back, except the header."""
    drop_directory(H)
    pool_close(H + 8 * SEGMENT_POOL)
    pool_close(H + 8 * ENTRY_POOL)
    return 0


@exported
def index_insert(H, h):
    """A new entry under hash `h`, known not to be there; the caller writes key and values at once."""
    word = segment_word(H, h)
    count = load(word & ADDRESS, 0)
    while 2 * (count + 1) > 1 << (word >> ADDRESS_BITS):
        make_room(H, h, word & ADDRESS, word >> ADDRESS_BITS)
        word = segment_word(H, h)
        count = load(word & ADDRESS, 0)
    entry = pool_take(H + 8 * ENTRY_POOL)
    place(word & ADDRESS, word >> ADDRESS_BITS, ((h & TAG) << ADDRESS_BITS) | entry)
    add_to(H, SIZE, 1)
    return entry


@jit()
def remove_at(H, h, at, entry):
    """Remove an entry of hash `h` from slot `at`; backward shift keeps the probe sequences whole."""
    word = segment_word(H, h)
    segment = word & ADDRESS
    mask = (1 << (word >> ADDRESS_BITS)) - 1
    ahead = (at + 1) & mask
    slot = load(segment, SLOTS + ahead)
    while slot != 0:
        home = (slot >> ADDRESS_BITS) & mask
        if ((ahead - home) & mask) >= ((ahead - at) & mask):
            store(segment, SLOTS + at, slot)
            at = ahead
        ahead = (ahead + 1) & mask
        slot = load(segment, SLOTS + ahead)
    store(segment, SLOTS + at, 0)
    count = load(segment, 0) - 1
    store(segment, 0, count)
    add_to(H, SIZE, -1)
    give_block(H + 8 * ENTRY_POOL, entry)
    if 8 * count <= mask and mask >= 1 << SMALLEST_LOG:
        index_shrink(H, h, 0)


@exported
def index_shrink(H, h, nothing):
    """See shrink."""
    shrink(H, h)
    return 0


@exported
def index_remove(H, entry):
    """Remove an entry that is there."""
    h = entry_hash(H, entry)
    remove_at(H, h, slot_of(H, h, entry), entry)
    return 0


@exported
def index_first(H):
    """Some entry, or 0 when there is none."""
    return scan(H, 0, 0)


@exported
def index_next(H, entry):
    """The entry after `entry` in the index's own order, or 0."""
    h = entry_hash(H, entry)
    at = slot_of(H, h, entry)
    depth = 63 - load(H, SHIFT)
    segment = segment_word(H, h) & ADDRESS
    position = (h >> load(H, SHIFT)) & -(1 << (depth - load(segment, 1)))
    return scan(H, position, at + 1)


@exported
def index_bytes(H):
    """Bytes of memory behind the header."""
    return load(H, HEAP_BYTES) + pool_bytes(H + 8 * SEGMENT_POOL) + pool_bytes(H + 8 * ENTRY_POOL)
