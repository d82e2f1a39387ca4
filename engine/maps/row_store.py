"""Rows of relations, each with how often it stands: checked as changes come, kept for views and expiry.

Compiled once for all relations: how wide rows are, and which columns are their key, are words in memory. A
block of relations is what the loop over changes is given; every relation in it has an index (row_index.py),
whose entries are its rows with their counts.

The rows of a relation whose changes are checked are found by its primary key, where it has one; others by all
of their columns.
"""

from orderbook.core.changes import CHECKED, END_OF_EVENT, END_OF_MESSAGE, NULL_CODE
from orderbook.core.jit import called_with, exported, jit
from orderbook.engine.maps.batch_arrays import describe_batch
from orderbook.engine.maps.hash_index import segment_word
from orderbook.engine.maps.memory import (
    calloc,
    fetch,
    load,
    load_byte,
    load_short,
    memory_move,
    release,
    store,
    trailing_zeros,
)
from orderbook.engine.maps.row_index import (
    EQUALS,
    EXPIRES,
    FED,
    FOUND_BY,
    FRESH,
    KEEPS,
    KEY_COLUMNS,
    MAX_ROWS,
    NUMBER,
    ROW,
    TAGS,
    TOTAL,
    WIDTH,
    entry_at,
    find_from,
    group_at,
    hash_of_row,
    insert_entry,
    matches,
    remove_entry,
    rows_close,
    rows_find_by,
    rows_index_bytes,
    rows_open,
    tag_of,
)
from orderbook.engine.maps.row_numbers import (
    arrive,
    close_equals,
    drop_number,
    equals_bytes,
    note_number,
    number_of_last,
)
from orderbook.engine.maps.store_layout import ADDRESS, ENTRY_WORDS, SIZE

_ENDS = END_OF_EVENT | END_OF_MESSAGE
# Words of a block of relations.
KINDS = 0  # two for each relation
CHECKS = 1  # not 0: what contradicts the rows that are there is refused
CLOCK_RELATION = 2  # its number, -1: none
REFUSED = 3  # address, words used and capacity of refusals
KINDS_AT = 6  # address and stride of the batch at hand
FLAGS_AT = 8
ROWS_AT = 10
# Of changes that are counted at once, at most AHEAD: address of what each is counted in, 0: it passes, with
# how in its low bits; and its row's hash.
AHEAD = 64
HELD = 12
HASHES = HELD + AHEAD
RELATIONS = HASHES + AHEAD  # of each PER_RELATION words: what is done with its changes, where its rows are
PER_RELATION = 2
MODES = 0
ROWS = 1
# Words that a core's own caches hold among others: entries that take no more are not fetched ahead.
NEAR_WORDS = 2**15
# What is done with changes.
LOOK, PASS, COUNT, COUNT_BELIEVED = range(4)
# The bit of MODES of relations whose rows are numbered as they come.
NUMBERED = 16

# How a relation is fed; OPEN: its rows are there, and no change has come yet.
UNKNOWN, FED_CHECKED, FED_UNCHECKED, OPEN = range(4)

# Refusals have four words: the reason, the first change and the one after the last, and the change at fault.
REFUSAL_WORDS = 4
NO_RELATION = 1
MIXED = 2
NOT_THERE = 3
DUPLICATE = 4
TOO_MANY = 5
UNFINISHED = 6


@jit()
def room(held, words):
    """Where `words` more words of a growing list go: its address, words used and capacity are at `held`."""
    used = load(held, 1)
    if used + words > load(held, 2):
        capacity = max(64, 2 * (used + words))
        grown = calloc(capacity, 8)
        memory_move(grown, load(held, 0), 8 * used)
        release(load(held, 0))
        store(held, 0, grown)
        store(held, 2, capacity)
    store(held, 1, used + words)
    return load(held, 0) + 8 * used


@jit()
def release_list(held):
    """Gives a growing list back."""
    release(load(held, 0))
    for word in range(3):
        store(held, word, 0)


@jit()
def recount(T, at, row, h, amount):
    """Adds to the count of a row, whose index refers to it at `at`, 0: it is not there."""
    total = load(T, TOTAL) + amount
    if at == 0:
        insert_entry(T, row, h, amount)
    else:
        entry = entry_at(at)
        count = load(entry, ROW + load(T, WIDTH)) + amount
        if count == 0:
            remove_entry(T, h, at, entry)
        else:
            store(entry, ROW + load(T, WIDTH), count)
    store(T, TOTAL, total)
    if load(T, EQUALS) != 0:
        if amount > 0:
            note_number(T, row)
        else:
            drop_number(T, row)


@exported
def add_row(T, row, amount):
    """Adds `amount`, not 0, to the count of the row at an address."""
    h = hash_of_row(T, row)
    recount(T, find_from(T, row, h, 0), row, h, amount)
    return 0


@jit()
def find(T, row):
    """The entry of a row, or 0."""
    at = find_from(T, row, hash_of_row(T, row), 0)
    return entry_at(at) if at != 0 else 0


@exported
def count_row(T, row, nothing):
    """How often the row at an address stands."""
    entry = find(T, row)
    return load(entry, ROW + load(T, WIDTH)) if entry != 0 else 0


@jit()
def modes(R, T, clock):
    """What is done with a relation's changes that are not CHECKED, and two bits above with those that are.

    Above both is NUMBERED.
    """
    fed, checks, keeps = load(T, FED), load(R, CHECKS) != 0, load(T, KEEPS) != 0
    numbered = load(T, NUMBER) != 0
    if clock != 0 or (keeps and fed == UNKNOWN):
        unchecked = checked = LOOK
    elif checks:
        unchecked = COUNT if fed == FED_UNCHECKED else LOOK
        checked = LOOK if fed != FED_CHECKED else COUNT_BELIEVED if keeps else PASS
    else:
        unchecked = checked = COUNT_BELIEVED if keeps else PASS
        if numbered and not keeps:
            unchecked = LOOK
    return unchecked | checked << 2 | (NUMBERED if numbered else 0)


@jit()
def feed(R, relation, how):
    """A relation's first change says how it is fed, and by which columns its rows are found."""
    own = R + 8 * (RELATIONS + PER_RELATION * relation)
    T = load(own, ROWS)
    keyed = how == FED_UNCHECKED and load(R, CHECKS) != 0 and load(T, KEY_COLUMNS) != 0
    if load(T, FED) == UNKNOWN:
        rows_open(T, load(T, KEY_COLUMNS) if keyed else load(T, WIDTH))
    elif keyed:
        rows_find_by(T, load(T, KEY_COLUMNS))
    store(T, FED, how)
    if how == FED_UNCHECKED and load(T, NUMBER) != 0:
        # Rows that go are found among those that are there.
        store(T, KEEPS, 1)
    store(own, MODES, modes(R, T, 1 if relation == load(R, CLOCK_RELATION) else 0))


@exported
def note_fresh(T, row):
    """Notes a row that came and will expire."""
    if load(row, load(T, EXPIRES)) != NULL_CODE:
        width = load(T, WIDTH)
        memory_move(room(T + 8 * FRESH, width), row, 8 * width)
    return 0


@jit()
def counted(T, row, h, how):
    """Counts a row that comes or, with bit 0 of `how`, goes; gives the reason why it cannot.

    With bit 1 it is believed.
    """
    delete = how & 1 != 0
    at = find_from(T, row, h, 1 if not delete and load(T, FOUND_BY) != load(T, WIDTH) else 0)
    if how & 2 == 0:
        if delete:
            if at == 0:
                return NOT_THERE
        elif at != 0 and load(T, KEY_COLUMNS) != 0:
            return DUPLICATE
        elif load(T, TOTAL) >= load(T, MAX_ROWS):
            return TOO_MANY
    recount(T, at, row, h, -1 if delete else 1)
    if load(T, EXPIRES) >= 0 and not delete:
        note_fresh(T, row)
    return 0


@jit()
def change(R, relation, delete, checked, row):
    """Counts a row that comes or goes, or gives the reason why it cannot."""
    T = load(R, RELATIONS + PER_RELATION * relation + ROWS)
    fed = load(T, FED)
    how = FED_CHECKED if checked else FED_UNCHECKED
    checks = load(R, CHECKS) != 0
    if fed == UNKNOWN or fed == OPEN:
        if fed == UNKNOWN and checks and not checked and delete:
            return NOT_THERE
        feed(R, relation, how)
    elif (checks or load(T, NUMBER) != 0) and fed != how:
        return MIXED
    if load(T, NUMBER) != 0:
        if not delete:
            arrive(T, row)
        elif number_of_last(T, row) == 0:
            return NOT_THERE
    believed = checked or not checks
    if believed and load(T, KEEPS) == 0:
        return 0
    return counted(T, row, hash_of_row(T, row), (1 if delete else 0) + (2 if believed else 0))


@exported
def take_back(R, start, at):
    """Undoes the changes start .. at - 1, the last first: what stood under a key stands there again."""
    for i in range(at - 1, start - 1, -1):
        kind = load_short(load(R, KINDS_AT) + i * load(R, KINDS_AT + 1))
        if kind >= 0 and kind < load(R, KINDS):
            T = load(R, RELATIONS + PER_RELATION * (kind >> 1) + ROWS)
            checked = load_byte(load(R, FLAGS_AT) + i * load(R, FLAGS_AT + 1)) & CHECKED
            if load(T, KEEPS) != 0 or (checked == 0 and load(R, CHECKS) != 0):
                add_row(T, load(R, ROWS_AT) + i * load(R, ROWS_AT + 1), 1 if kind & 1 else -1)
    return 0


@jit()
def refuse(R, reason, start, end, at):
    noted = room(R + 8 * REFUSED, REFUSAL_WORDS)
    store(noted, 0, reason)
    store(noted, 1, start)
    store(noted, 2, end)
    store(noted, 3, at)
    return ~end


@exported
def admit(R, start, stop):
    """Checks and counts the rows of the event that begins with change `start` of the batch at hand.

    Returns the index after its last change; the complement of that where the event is refused, which leaves
    the rows as they were; `start` itself where that is a change of the clock that its own ticks did not make.
    """
    reason = 0
    unchecked = False
    fault = start
    for at in range(start, stop):
        kind = load_short(load(R, KINDS_AT) + at * load(R, KINDS_AT + 1))
        flag = load_byte(load(R, FLAGS_AT) + at * load(R, FLAGS_AT + 1))
        checked = flag & CHECKED != 0
        if kind >= 0 and reason == 0:
            if kind >> 1 == load(R, CLOCK_RELATION) and not checked:
                if at == start:
                    return start
                take_back(R, start, at)
                return refuse(R, UNFINISHED, start, at, at)
            unchecked = unchecked or not checked
            if kind >= load(R, KINDS):
                reason = NO_RELATION if load(R, CHECKS) != 0 else 0
            else:
                row = load(R, ROWS_AT) + at * load(R, ROWS_AT + 1)
                reason = change(R, kind >> 1, kind & 1 != 0, checked, row)
            if reason != 0:
                take_back(R, start, at)
                fault = at
        if flag & _ENDS:
            return at + 1 if reason == 0 else refuse(R, reason, start, at + 1, fault)
    if reason == 0 and (not unchecked or load(R, CHECKS) == 0):
        return stop
    if reason == 0:
        take_back(R, start, stop)
    return refuse(R, UNFINISHED, start, stop, start)


@jit()
def passing_events(R, start, limit, stop):
    """Where the last event ends of those from `start` on that begin before `limit`, up to the first of which
    some change does not pass; `start` where that is the first."""
    kind_at = load(R, KINDS_AT) + start * load(R, KINDS_AT + 1)
    flag_at = load(R, FLAGS_AT) + start * load(R, FLAGS_AT + 1)
    ended = start
    for at in range(start, stop):
        if at >= limit and ended == at:
            return ended
        kind = load_short(kind_at)
        flag = load_byte(flag_at)
        if kind >= 0:
            if kind >= load(R, KINDS):
                return ended
            modes_there = load(R, RELATIONS + PER_RELATION * (kind >> 1) + MODES)
            if modes_there >> (2 if flag & CHECKED else 0) & 3 != PASS:
                return ended
        if flag & _ENDS:
            ended = at + 1
        kind_at += load(R, KINDS_AT + 1)
        flag_at += load(R, FLAGS_AT + 1)
    return ended


@jit()
def held_events(R, start, limit):
    """Where the last event ends, by `limit`, up to which changes only pass or are counted, as noted in HELD.

    `start` where there is none such.
    """
    kind_at = load(R, KINDS_AT) + start * load(R, KINDS_AT + 1)
    flag_at = load(R, FLAGS_AT) + start * load(R, FLAGS_AT + 1)
    ended = start
    for at in range(start, limit):
        kind = load_short(kind_at)
        flag = load_byte(flag_at)
        held = 0
        if kind >= load(R, KINDS):
            return ended
        if kind >= 0:
            own = R + 8 * (RELATIONS + PER_RELATION * (kind >> 1))
            modes_there = load(own, MODES)
            mode = modes_there >> (2 if flag & CHECKED else 0) & 3
            if mode == LOOK or (kind & 1 and modes_there & NUMBERED):
                return ended
            if mode != PASS:
                held = load(own, ROWS) | kind & 1 | (mode & 1) << 1
        store(R, HELD + at - start, held)
        if flag & _ENDS:
            ended = at + 1
        kind_at += load(R, KINDS_AT + 1)
        flag_at += load(R, FLAGS_AT + 1)
    return ended


@jit()
def count_held(R, start, end):
    """Counts changes that are noted in HELD. Where one cannot be, its event is the first that is left."""
    stride = load(R, ROWS_AT + 1)
    row = load(R, ROWS_AT) + start * stride
    # The words of the largest relation's entries: few are near already.
    large = 0
    for i in range(end - start):
        T = load(R, HELD + i) & -4
        if T != 0:
            large = max(large, load(T, SIZE) * load(T, ENTRY_WORDS))
            if load(T, NUMBER) != 0:
                arrive(T, row)
            h = hash_of_row(T, row)
            store(R, HASHES + i, h)
            fetch(group_at(segment_word(T, h), h))
        row += stride
    for i in range(end - start if large > NEAR_WORDS else 0):
        T = load(R, HELD + i) & -4
        if T != 0:
            h = load(R, HASHES + i)
            group = group_at(segment_word(T, h), h)
            found = matches(load(group, TAGS), tag_of(h))
            if found != 0:
                entry = load(group, trailing_zeros(found) >> 3) & ADDRESS
                fetch(entry)
                fetch(entry + 8 * (ROW + load(T, WIDTH)))
    row = load(R, ROWS_AT) + start * stride
    flag_at = load(R, FLAGS_AT) + start * load(R, FLAGS_AT + 1)
    begun = start
    for i in range(end - start):
        held = load(R, HELD + i)
        if held != 0:
            T = held & -4
            if counted(T, row, load(R, HASHES + i), held & 3) != 0:
                take_back(R, begun, start + i)
                return begun
            # Rows of the next call, of which there may be none: their lines are too far apart to be foreseen.
            fetch(row + AHEAD * stride)
            fetch(row + AHEAD * stride + 8 * (load(T, WIDTH) - 1))
        if load_byte(flag_at) & _ENDS:
            begun = start + i + 1
        row += stride
        flag_at += load(R, FLAGS_AT + 1)
    return end


@exported
def admit_events(R, start, limit, stop):
    """As `admit`, of all events that end by `limit`, or near it, and that nothing is to be said of."""
    end = passing_events(R, start, limit, stop)
    if end != start:
        return end
    end = held_events(R, start, limit)
    if end != start:
        end = count_held(R, start, end)
    return end if end != start else admit(R, start, stop)


@jit()
def batch_begins(R, batch):
    """Lets `admit` know the batch that is described at an address."""
    for word in range(6):
        store(R, KINDS_AT + word, load(batch, word))


@jit()
def admitted(R, start, ahead, stop):
    """As `admit`, of the events of the next `ahead` changes, at most AHEAD. Without a block (0) all pass."""
    if R == 0:
        return stop
    return admit_events(R, start, min(start + ahead, stop), stop)


@jit()
def give_back(R, start, end):
    """Uncounts the changes start .. end - 1, which were admitted and have not been applied."""
    if R != 0 and start < end:
        take_back(R, start, end)


@jit()
def tells(R):
    """Whether events have been refused since Python last looked."""
    return R != 0 and load(R, REFUSED + 1) != 0


@jit(nogil=True)
def admit_all(R, start, stop):
    """Admits the events of changes start .. stop - 1 of the batch that `begin_batch` was told of.

    Returns where it ended: before the end at a change of the clock.
    """
    at = start
    while at < stop:
        end = admit_events(R, at, min(at + AHEAD, stop), stop)
        if end == at:
            return at
        at = ~end if end < 0 else end
    return at


@called_with("iiooo")
def begin_batch(R, types, kinds, flags, values):
    """The batch that `admit_all` is of; see `describe_batch`."""
    return describe_batch(R + 8 * KINDS_AT, types, kinds, flags, values)


@jit(nogil=True)
def add_rows(T, rows, stride, counts, count):
    """Adds `count` rows, `stride` bytes apart, with how often each stands: addresses of both."""
    for i in range(count):
        if load(counts, i) != 0:
            add_row(T, rows + i * stride, load(counts, i))


@jit(nogil=True)
def counts_of(T, rows, stride, counts, count):
    """How often each of `count` rows stands, to words at `counts`."""
    for i in range(count):
        store(counts, i, count_row(T, rows + i * stride, 0))


@jit(nogil=True)
def first_of_equals(T, rows, stride, counts, count):
    """As `counts_of`, but 0 for a row that comes again."""
    width = ROW + load(T, WIDTH)
    for i in range(count):
        row = rows + i * stride
        found = count_row(T, row, 0)
        if found > 0:
            store(find(T, row), width, -found)
        store(counts, i, max(found, 0))
    for i in range(count):
        if load(counts, i) > 0:
            row = rows + i * stride
            store(find(T, row), width, load(counts, i))


@jit()
def open_rows(T):
    """Opens rows on their own, found by all of their columns."""
    rows_open(T, load(T, WIDTH))


@jit()
def modes_of(R, T, clock):
    """See `modes`, for Python."""
    return modes(R, T, clock)


@jit()
def feed_relation(R, relation, how):
    """See `feed`, for Python."""
    feed(R, relation, how)


@jit()
def add_fresh(T, rows, count):
    """Rows that expire, side by side at an address, came before others."""
    words = count * load(T, WIDTH)
    memory_move(room(T + 8 * FRESH, words), rows, 8 * words)


@jit()
def close_rows(T):
    """Gives all memory of rows back but the words of their header."""
    close_equals(T)
    rows_close(T)
    release_list(T + 8 * FRESH)


@jit()
def rows_bytes(T):
    """Bytes of memory behind the header."""
    return rows_index_bytes(T) + equals_bytes(T) + 8 * load(T, FRESH + 2)
