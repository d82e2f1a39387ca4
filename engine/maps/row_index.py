"""The hash index that rows of relations are found by: groups of seven entries, each group one cache line.

Extendible hashing, with the directory and the pools of hash_index.py; its segments are tables of groups. A
group is seven references to entries and one word: a tag of seven hash bits for each, 0 where there is none,
and how many entries passed the group because it was full. A search compares all tags at once, and goes on to
the next group only where entries have passed, so that deletes leave no marks (F14: Bronson and Shi, Facebook,
2019). A count of 255 stays, since it may be too low, until the segment is made anew.

An entry is the hash of the columns it is found by, its row, and its count. Entries never move. How wide rows
are and which columns they are found by are words in memory.
"""

from orderbook.core.jit import exported, jit
from orderbook.engine.maps.hash_index import (
    add_to,
    begin,
    can_split,
    heap_give,
    heap_take,
    note_merge,
    note_split,
    pool_bytes,
    pool_clear,
    pool_close,
    pool_give,
    pool_open,
    pool_take,
    segment_word,
    set_directory,
)
from orderbook.engine.maps.memory import (
    calloc,
    fetch,
    high_bits,
    load,
    mix,
    release,
    store,
    trailing_zeros,
)
from orderbook.engine.maps.row_words import copy_four, product, products_of_four, same_four
from orderbook.engine.maps.store_layout import (
    ADDRESS,
    ADDRESS_BITS,
    DIRECTORY,
    ENTRY_POOL,
    ENTRY_WORDS,
    HEAP_BYTES,
    SEED,
    SEGMENT_POOL,
    SHIFT,
    SIZE,
    SLICES,
)

# Words of rows, after those of their index.
WIDTH = SLICES
FED = SLICES + 1
KEEPS = SLICES + 2  # not 0: all of its rows are kept, checked or not
KEY_COLUMNS = SLICES + 3  # how many columns its primary key has
TOTAL = SLICES + 4
MAX_ROWS = SLICES + 5
EXPIRES = SLICES + 6  # the column of the time at which rows begin to expire, -1: they do not
FRESH = SLICES + 7  # address, words used and capacity of rows that came, where they expire
FOUND_BY = SLICES + 10  # how many of the columns rows are found by
SPARE = SLICES + 11  # an entry that was removed, 0: none
NUMBER = SLICES + 12  # 1 + the column that numbers rows as they come (row_numbers.py), 0: they have none
LAST_NUMBER = SLICES + 13
EQUALS = SLICES + 14  # the index that finds rows without regard to their number, 0: none
PLACES = SLICES + 15  # the columns, those of the primary key first; then the factor of each in its hash


def header_words(width: int) -> int:
    """Words of an index of rows of so many columns, and of what is said of it."""
    return PLACES + 2 * width


# Words of an entry.
HASH = 0
ROW = 1

# A segment is a line of (entries, local depth, address of its memory if that is from the heap), then groups.
# A directory word is log2(groups) << 48 | segment address.
DEPTH = 1
MEMORY = 2
SEGMENT_WORDS = 8
LINE = 64
# A group is references, each the low 15 bits of its entry's hash << 48 | the entry's address, then tags.
REFERENCES = 7
TAGS = 7
HOME = (1 << 15) - 1
TAG_SHIFT = 15
SMALLEST_LOG = 1
FULL_LOG = 6
# Entries for each group: at most, where a segment shrinks, and at most where two merge.
MOST, FEWEST, MERGED = 4, 1, 2
DEEPEST = 40
# The lowest and the highest bit of each tag. Where passed entries are counted, and the last count.
LOWEST_BITS = 0x0001010101010101
HIGHEST_BITS = 0x0080808080808080
PASSED_SHIFT = 56
STUCK = 255


@jit()
def set_factors(T, columns):
    """Lets rows be found by their first columns."""
    store(T, FOUND_BY, columns)
    width = load(T, WIDTH)
    factors = T + 8 * (PLACES + width)
    for column in range(width):
        store(factors, column, 0)
    for word in range(columns):
        column = load(T, PLACES + word)
        store(factors, column, mix(SEED, column) | 1)


@jit()
def hash_of_row(T, row):
    """63 bits of the columns a row is found by.

    A multilinear function (Lemire and Kaser, Strongly universal string hashing is fast, 2014), whose high and
    low ends are mixed. Each column has a factor, 0 where rows are not found by it.
    """
    width = load(T, WIDTH)
    factors = T + 8 * (PLACES + width)
    total = 0
    word = 0
    while word + 4 <= width:
        total += products_of_four(factors, row, word)
        word += 4
    if word < width:
        total += product(load(factors, word), load(row, word))
    if word + 1 < width:
        total += product(load(factors, word + 1), load(row, word + 1))
    if word + 2 < width:
        total += product(load(factors, word + 2), load(row, word + 2))
    return high_bits(mix(SEED, total), 1)


@jit()
def same_row(entry, row, width):
    """Whether an entry is of a row."""
    own = entry + 8 * ROW
    word = 0
    while word + 4 <= width:
        if not same_four(own, row, word):
            return False
        word += 4
    differing = 0
    if word < width:
        differing = load(own, word) ^ load(row, word)
    if word + 1 < width:
        differing |= load(own, word + 1) ^ load(row, word + 1)
    if word + 2 < width:
        differing |= load(own, word + 2) ^ load(row, word + 2)
    return differing == 0


@jit()
def same_key(T, entry, row):
    """Whether an entry agrees with a row in the columns that rows are found by."""
    word = 0
    while word < load(T, FOUND_BY):
        column = load(T, PLACES + word)
        if load(entry, ROW + column) != load(row, column):
            return False
        word += 1
    return True


@jit()
def copy_row(entry, row, width):
    """Writes a row to an entry."""
    own = entry + 8 * ROW
    word = 0
    while word + 4 <= width:
        copy_four(own, row, word)
        word += 4
    if word < width:
        store(own, word, load(row, word))
    if word + 1 < width:
        store(own, word + 1, load(row, word + 1))
    if word + 2 < width:
        store(own, word + 2, load(row, word + 2))


@jit()
def tag_of(h):
    return (h >> TAG_SHIFT) & 127 | 128


@jit()
def matches(tags, tag):
    """The highest bit of each tag that is this one, and perhaps of some behind one that is."""
    differing = tags ^ tag * LOWEST_BITS
    return (differing - LOWEST_BITS) & ~differing & HIGHEST_BITS


@jit()
def group_at(word, home):
    """The group of a directory word's segment that hashes with these low bits begin at."""
    mask = (1 << (word >> ADDRESS_BITS)) - 1
    return (word & ADDRESS) + 8 * SEGMENT_WORDS + LINE * (home & HOME & mask)


@jit()
def group_after(word, group):
    """The next group of the segment, of the last one the first."""
    first = (word & ADDRESS) + 8 * SEGMENT_WORDS
    return first + ((group - first + LINE) & ((LINE << (word >> ADDRESS_BITS)) - 1))


@exported
def rows_search(T, row, h, keyed):
    """See `find_from`, group by group."""
    width = load(T, WIDTH)
    word = segment_word(T, h)
    home = group_at(word, h)
    group = home
    while True:
        tags = load(group, TAGS)
        found = matches(tags, tag_of(h))
        while found != 0:
            place = trailing_zeros(found) >> 3
            entry = load(group, place) & ADDRESS
            if same_key(T, entry, row) if keyed != 0 else same_row(entry, row, width):
                return group + place
            found &= found - 1
        if high_bits(tags, PASSED_SHIFT) == 0:
            return 0
        group = group_after(word, group)
        # All groups may have been passed.
        if group == home:
            return 0


@jit()
def find_from(T, row, h, keyed):
    """Where the index refers to the entry of a row with this hash, or 0: see `entry_at`.

    keyed: not 0: to the entry with the row's key.
    """
    group = group_at(segment_word(T, h), h)
    tags = load(group, TAGS)
    found = matches(tags, tag_of(h))
    # Almost always the first group says it, by one tag or none.
    if found != 0:
        place = trailing_zeros(found) >> 3
        if keyed == 0 and same_row(load(group, place) & ADDRESS, row, load(T, WIDTH)):
            return group + place
        return rows_search(T, row, h, keyed)
    if high_bits(tags, PASSED_SHIFT) == 0:
        return 0
    return rows_search(T, row, h, keyed)


@jit()
def entry_at(at):
    """The entry that is referred to from an address of a group with a place in it in its low bits."""
    return load(at & -LINE, at & TAGS) & ADDRESS


@exported
def rows_pass(word, home):
    """The first group with room for an entry, which counts as passing those before it."""
    group = group_at(word, home)
    while ~load(group, TAGS) & HIGHEST_BITS == 0:
        tags = load(group, TAGS)
        if high_bits(tags, PASSED_SHIFT) != STUCK:
            store(group, TAGS, tags + (1 << PASSED_SHIFT))
        group = group_after(word, group)
    return group


@jit()
def group_with_room(word, home):
    """See `rows_pass`."""
    group = group_at(word, home)
    if ~load(group, TAGS) & HIGHEST_BITS == 0:
        return rows_pass(word, home)
    return group


@exported
def rows_unpass(word, home, last):
    """Uncounts an entry in group `last` in the groups it has passed."""
    group = group_at(word, home)
    while group != last:
        tags = load(group, TAGS)
        if high_bits(tags, PASSED_SHIFT) != STUCK:
            store(group, TAGS, tags - (1 << PASSED_SHIFT))
        group = group_after(word, group)
    return 0


@jit()
def put(group, reference, tag):
    """Refers to an entry from a group with room."""
    tags = load(group, TAGS)
    place = trailing_zeros(~tags & HIGHEST_BITS) >> 3
    store(group, place, reference)
    store(group, TAGS, tags | tag << 8 * place)


@jit()
def new_segment(T, log, local_depth):
    """An empty segment of 2^log groups; those of the usual full size are pooled."""
    words = SEGMENT_WORDS + (REFERENCES + 1 << log)
    if log == FULL_LOG:
        segment = pool_take(T + 8 * SEGMENT_POOL)
        for i in range(words):
            store(segment, i, 0)
    else:
        # The heap aligns to 16 bytes.
        memory = heap_take(T, words + LINE // 8)
        segment = (memory + LINE - 1) & -LINE
        store(segment, MEMORY, memory)
    store(segment, DEPTH, local_depth)
    return segment


@jit()
def drop_segment(T, word):
    segment, log = word & ADDRESS, word >> ADDRESS_BITS
    if log == FULL_LOG:
        pool_give(T + 8 * SEGMENT_POOL, segment)
    else:
        heap_give(T, load(segment, MEMORY), SEGMENT_WORDS + (REFERENCES + 1 << log) + LINE // 8)


@jit()
def share_out(word, bit, zero, one):
    """Puts all of a segment's entries to one of two, given as directory words, by a bit of their hashes."""
    first = (word & ADDRESS) + 8 * SEGMENT_WORDS
    groups = 1 << (word >> ADDRESS_BITS)
    if zero != one:
        # Entries lie far apart, and each says its hash itself.
        for number in range(groups * REFERENCES):
            group = first + LINE * (number // REFERENCES)
            fetch(load(group, number % REFERENCES) & ADDRESS)
    for number in range(groups):
        group = first + LINE * number
        tags = load(group, TAGS)
        for place in range(REFERENCES):
            tag = (tags >> 8 * place) & 255
            if tag != 0:
                reference = load(group, place)
                side = zero
                if zero != one and (load(reference & ADDRESS, HASH) >> bit) & 1:
                    side = one
                put(group_with_room(side, reference >> ADDRESS_BITS), reference, tag)
                add_to(side & ADDRESS, 0, 1)


@jit()
def resize_segment(T, h, new_log):
    word = segment_word(T, h)
    local_depth = load(word & ADDRESS, DEPTH)
    new = (new_log << ADDRESS_BITS) | new_segment(T, new_log, local_depth)
    share_out(word, 0, new, new)
    drop_segment(T, word)
    set_directory(T, h, local_depth, new)


@jit()
def split_segment(T, h):
    """Shares a full-size segment's entries out to two by the next bit of their hashes."""
    word = segment_word(T, h)
    local_depth = load(word & ADDRESS, DEPTH)
    bit = 62 - local_depth
    zero = (FULL_LOG << ADDRESS_BITS) | new_segment(T, FULL_LOG, local_depth + 1)
    one = (FULL_LOG << ADDRESS_BITS) | new_segment(T, FULL_LOG, local_depth + 1)
    share_out(word, bit, zero, one)
    drop_segment(T, word)
    note_split(T, h, local_depth, zero, one)


@exported
def rows_make_room(T, h):
    """Splits or grows the segment of hash `h` until it takes one more entry."""
    while True:
        word = segment_word(T, h)
        log = word >> ADDRESS_BITS
        if load(word & ADDRESS, 0) < MOST << log:
            return 0
        local_depth = load(word & ADDRESS, DEPTH)
        if log == FULL_LOG and can_split(T, local_depth) and local_depth < DEEPEST:
            split_segment(T, h)
        else:
            resize_segment(T, h, log + 1)


@jit()
def merge_segments(T, h, buddy):
    """Merges the segment of `h` with its buddy."""
    word = segment_word(T, h)
    local_depth = load(word & ADDRESS, DEPTH)
    share_out(buddy, 0, word, word)
    drop_segment(T, buddy)
    store(word & ADDRESS, DEPTH, local_depth - 1)
    note_merge(T, h, local_depth, word)


@exported
def rows_shrink(T, h):
    """Merges or halves the segment of hash `h` while it is nearly empty."""
    while True:
        word = segment_word(T, h)
        log = word >> ADDRESS_BITS
        count = load(word & ADDRESS, 0)
        if count > FEWEST << log:
            return 0
        local_depth = load(word & ADDRESS, DEPTH)
        if local_depth > 0 and log == FULL_LOG:
            depth = 63 - load(T, SHIFT)
            there = (h >> load(T, SHIFT)) ^ (1 << (depth - local_depth))
            buddy = load(load(T, DIRECTORY), there)
            alike = buddy >> ADDRESS_BITS == FULL_LOG and load(buddy & ADDRESS, DEPTH) == local_depth
            if not alike or count + load(buddy & ADDRESS, 0) > MERGED << FULL_LOG:
                return 0
            merge_segments(T, h, buddy)
        elif log > SMALLEST_LOG:
            resize_segment(T, h, log - 1)
        else:
            return 0


@jit()
def word_with_room(T, h):
    """The directory word of the segment of hash `h`, which takes one more entry."""
    word = segment_word(T, h)
    if load(word & ADDRESS, 0) >= MOST << (word >> ADDRESS_BITS):
        rows_make_room(T, h)
        return segment_word(T, h)
    return word


@jit()
def refer(T, h, word, entry):
    """Refers to an entry from the segment of `word_with_room`."""
    put(group_with_room(word, h), (h & HOME) << ADDRESS_BITS | entry, tag_of(h))
    add_to(word & ADDRESS, 0, 1)
    add_to(T, SIZE, 1)


@jit()
def insert_entry(T, row, h, count):
    """A new entry for a row that is not there."""
    word = word_with_room(T, h)
    width = load(T, WIDTH)
    entry = load(T, SPARE)
    if entry != 0:
        store(T, SPARE, 0)
    else:
        entry = pool_take(T + 8 * ENTRY_POOL)
    refer(T, h, word, entry)
    store(entry, HASH, h)
    copy_row(entry, row, width)
    store(entry, ROW + width, count)


@jit()
def remove_entry(T, h, at, entry):
    """Removes an entry of hash `h`, to which the index refers at `at`."""
    word = segment_word(T, h)
    own = at & -LINE
    if group_at(word, h) != own:
        rows_unpass(word, h, own)
    store(own, TAGS, load(own, TAGS) & ~(255 << 8 * (at & TAGS)))
    count = load(word & ADDRESS, 0) - 1
    store(word & ADDRESS, 0, count)
    add_to(T, SIZE, -1)
    # Most often another row comes at once; what reads the pool sees by the count that this is none.
    if load(T, SPARE) == 0:
        store(T, SPARE, entry)
        store(entry, ROW + load(T, WIDTH), 0)
    else:
        pool_give(T + 8 * ENTRY_POOL, entry)
    log = word >> ADDRESS_BITS
    if count <= FEWEST << log and log > SMALLEST_LOG:
        rows_shrink(T, h)


@jit()
def begin_empty(T):
    """Writes the directory of an index that refers to nothing."""
    begin(T, (SMALLEST_LOG << ADDRESS_BITS) | new_segment(T, SMALLEST_LOG, 0))


@jit()
def walk(T, out, drop):
    """Writes the addresses of all entries to words at `out`, where that is not 0. drop: gives the directory
    and all segments back."""
    directory = load(T, DIRECTORY)
    depth = 63 - load(T, SHIFT)
    position = 0
    while position < 1 << depth:
        word = load(directory, position)
        position += 1 << (depth - load(word & ADDRESS, DEPTH))
        group = (word & ADDRESS) + 8 * SEGMENT_WORDS
        for _ in range(1 << (word >> ADDRESS_BITS) if out != 0 else 0):
            for place in range(REFERENCES):
                if (load(group, TAGS) >> 8 * place) & 255:
                    store(out, 0, load(group, place) & ADDRESS)
                    out += 8
            group += LINE
        if drop:
            drop_segment(T, word)
    if drop:
        heap_give(T, directory, 1 << depth)


@exported
def rows_open(T, columns):
    """Sets up an empty index of rows that are found by their first columns, in a header that has none."""
    words = ROW + load(T, WIDTH) + 1
    set_factors(T, columns)
    store(T, ENTRY_WORDS, words)
    pool_open(T + 8 * ENTRY_POOL, words)
    pool_open(T + 8 * SEGMENT_POOL, SEGMENT_WORDS + (REFERENCES + 1 << FULL_LOG))
    begin_empty(T)
    return 0


@exported
def rows_close(T):
    """Gives all memory of the index back but the header; a header without one is left alone."""
    if load(T, FOUND_BY) != 0:
        walk(T, 0, True)
        pool_close(T + 8 * SEGMENT_POOL)
        pool_close(T + 8 * ENTRY_POOL)
        store(T, FOUND_BY, 0)
        store(T, SPARE, 0)
    return 0


@exported
def rows_find_by(T, columns):
    """Lets rows be found by another number of their columns; entries stay where they are."""
    size = load(T, SIZE)
    entries = calloc(size + 1, 8)
    walk(T, entries, True)
    pool_clear(T + 8 * SEGMENT_POOL)
    begin_empty(T)
    set_factors(T, columns)
    for number in range(size):
        entry = load(entries, number)
        h = hash_of_row(T, entry + 8 * ROW)
        store(entry, HASH, h)
        refer(T, h, word_with_room(T, h), entry)
    release(entries)
    return 0


@exported
def rows_index_bytes(T):
    """Bytes of memory behind the header."""
    return load(T, HEAP_BYTES) + pool_bytes(T + 8 * SEGMENT_POOL) + pool_bytes(T + 8 * ENTRY_POOL)
