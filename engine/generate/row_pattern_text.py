"""The template of a row pattern's module; `row_patterns.py` fills in what depends on the pattern.

A partition is words: address, first place, count and capacity of its rows, an array, then address, count
and capacity of the threads after the last row. A row has its words, how far back the oldest thread began
after it, and the address of the match that begins at it: whether it is told (0), new (1) or gone before it
was told (2), then the columns. A thread is a position, where its match began, and what is kept of the match.
"""

TEXT = '''\
@jit()
def row_at(P, i):
    """The address of a row."""
    return load(P, 0) + {row_bytes} * (load(P, 1) + i)


@jit()
def row_back(M, P, i, back):
    """The address of the row so many rows before one; of a row of zeros where there is none."""
    return row_at(P, i - back) if i >= back else load(M, {nothing})


@jit()
def place_of(P, row):
    """The place of a row, or where it would come."""
    high = load(P, 2)
    if high == 0 or comes_before(row_at(P, high - 1), row):
        return high
    low, high = 0, high - 1
    while low < high:
        middle = (low + high) >> 1
        if comes_before(row_at(P, middle), row):
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def make_room(P, i):
    """Room for a row at a place; the shorter side of the array moves."""
    count, first = load(P, 2), load(P, 1)
    if first + count == load(P, 3):
        capacity = load(P, 3)
        if 2 * count >= capacity:
            capacity = max(4, 2 * capacity)
        start = (capacity - count) >> 2
        grown = calloc(capacity, {row_bytes})
        memory_move(grown + {row_bytes} * start, row_at(P, 0), {row_bytes} * count)
        release(load(P, 0))
        store(P, 0, grown)
        store(P, 1, start)
        store(P, 3, capacity)
        first = start
    if 2 * i < count and first > 0:
        memory_move(row_at(P, -1), row_at(P, 0), {row_bytes} * i)
        store(P, 1, first - 1)
    else:
        memory_move(row_at(P, i + 1), row_at(P, i), {row_bytes} * (count - i))
    store(P, 2, count + 1)


@jit()
def close_room(P, i):
    """Takes the row at a place out."""
    count = load(P, 2)
    if 2 * i < count:
        memory_move(row_at(P, 1), row_at(P, 0), {row_bytes} * i)
        store(P, 1, load(P, 1) + 1)
    else:
        memory_move(row_at(P, i), row_at(P, i + 1), {row_bytes} * (count - i - 1))
    store(P, 2, count - 1)


@jit()
def forget(M, match):
    """A match is none any more."""
    if match == 0:
        return
    if load(match, 0) == 1:
        # New in this event: nobody knows it.
        store(match, 0, 2)
        return
    gone = push_key(M, {gone}, {columns} + 1)
    for word in range({columns}):
        store(gone, word, load(match, 1 + word))
    store(gone, {columns}, 0)
    release(match)


@jit()
def drop(M, row):
    """Ends the match that begins at a row, if one does."""
    match = load(row, {match})
    store(row, {match}, 0)
    forget(M, match)


@jit()
def accept(S, M, P, start, kept, i):
    """The match that begins at `start` ends at row i, and replaces the one that was."""
    drop(M, row_at(P, start))
    match = calloc({columns} + 1, 8)
    measured(S, M, P, kept, i, match + 8)
    store(match, 0, 1)
    store(row_at(P, start), {match}, match)
    store(push_key(M, {fresh}, 1), 0, match)


@jit()
def is_last(M, start):
    """Whether a thread comes before what would be listed next that may replace a match of that start."""
    count = load(M, {next} + 1)
    if count == 0:
        return False
    return {is_last}


@jit()
def goes_on_as(entry, position, start, kept):
    """Whether a thread that is listed goes on as another one."""
    same = load(entry, 0) == position and {mergeable}
    for word in range({conditional}):
        same = same and load(entry, 2 + word) == load(kept, word)
    return same


@jit()
def slot_of(M, position, start, kept):
    """The place in the table of threads of one that goes on as this one, or where it would be."""
    h = mix(position, {start_or_nothing})
    for word in range({conditional}):
        h = mix(h, load(kept, word))
    mask = load(M, {seen} + 1) - 1
    at = h & mask
    while True:
        found = load(M, {seen}) + 16 * at
        if load(found, 0) != load(M, {seen} + 2):
            return found
        if goes_on_as(load(M, {next}) + {thread_bytes} * load(found, 1), position, start, kept):
            return found
        at = (at + 1) & mask


@jit()
def see_threads(M):
    """Puts all threads that are listed into the table."""
    size = load(M, {seen} + 1)
    if 4 * load(M, {next} + 1) > size:
        size = max(32, 8 * load(M, {next} + 1))
        bits = 1
        while bits < size:
            bits *= 2
        release(load(M, {seen}))
        store(M, {seen}, calloc(bits, 16))
        store(M, {seen} + 1, bits)
        store(M, {seen} + 2, 0)
    store(M, {seen} + 2, load(M, {seen} + 2) + 1)
    store(M, {seen} + 3, 1)
    entry = load(M, {next})
    for place in range(load(M, {next} + 1)):
        if load(entry, 0) != {end}:
            found = slot_of(M, load(entry, 0), load(entry, 1), entry + 16)
            store(found, 0, load(M, {seen} + 2))
            store(found, 1, place)
        entry += {thread_bytes}


@jit()
def enter(M, position, start, kept):
    """Lists a thread, unless one before it goes on alike; of many there is a table."""
    count = load(M, {next} + 1)
    if count < {few_threads}:
        entry = load(M, {next})
        for _ in range(count):
            if goes_on_as(entry, position, start, kept):
                return
            entry += {thread_bytes}
    else:
        if load(M, {seen} + 3) == 0 or 2 * (count + 1) > load(M, {seen} + 1):
            see_threads(M)
        found = slot_of(M, position, start, kept)
        if load(found, 0) == load(M, {seen} + 2):
            return
        store(found, 0, load(M, {seen} + 2))
        store(found, 1, count)
    place = push_key(M, {next}, {thread})
    store(place, 0, position)
    store(place, 1, start)
    for word in range({kept}):
        store(place, 2 + word, load(kept, word))


@jit()
def advance(S, M, P, position, start, kept, i):
    """Lists what follows a position that row i has; whether the match ends, of which what follows is out."""
    table = load(M, {table})
    own = table + 8 * load(table, position + 1)
    for k in range(load(own, 1)):
        follows = load(own, 2 + k)
        if follows == {end}:
            accept(S, M, P, start, kept, i)
            if is_last(M, start):
                place = push_key(M, {next}, {thread})
                store(place, 0, {end})
                store(place, 1, start)
            return True
        enter(M, follows, start, kept)
    return False


@jit()
def step(S, M, P, i):
    """Row i goes through the automaton."""
    row, trial = row_at(P, i), load(M, {trial})
    entry = load(M, {now})
    store(M, {next} + 1, 0)
    store(M, {seen} + 3, 0)
    ended = -1
    for _ in range(load(M, {now} + 1)):
        position, start = load(entry, 0), load(entry, 1)
        if ended >= 0 and {is_out}:
            if position == {end} and start != ended:
                drop(M, row_at(P, start))
        elif position == {end}:
            if is_last(M, start):
                place = push_key(M, {next}, {thread})
                store(place, 0, {end})
                store(place, 1, start)
        elif {in_time}:
            for word in range({kept}):
                store(trial, word, load(entry, 2 + word))
            if attempt(S, M, P, position, trial, i) and advance(S, M, P, position, start, trial, i):
                ended = start
        entry += {thread_bytes}
    if ended < 0{or_overlapping}:
        table = load(M, {table})
        own = table + 8 * load(table, 0)
        begun = False
        for k in range(load(own, 1)):
            if not begun:
                position = load(own, 2 + k)
                for word in range({kept}):
                    store(trial, word, 0)
                if attempt(S, M, P, position, trial, i):
                    begun = advance(S, M, P, position, i, trial, i)
    for word in range(3):
        held = load(M, {now} + word)
        store(M, {now} + word, load(M, {next} + word))
        store(M, {next} + word, held)
    back = 0 if load(M, {now} + 1) == 0 else i + 1 - load(load(M, {now}), 1)
    store(row, {back}, back)


@jit()
def exchange(M, P):
    """The threads at hand and those after the last row of a partition change places."""
    for word in range(3):
        held = load(M, {now} + word)
        store(M, {now} + word, load(P, 4 + word))
        store(P, 4 + word, held)


@jit()
def replace_matches(M, P, first, open_ones):
    """Matches that began at rows from one on are as found anew; those under way in open ones as they were."""
    entry, left = load(M, {now}), load(M, {now} + 1) if open_ones else 0
    for k in range(load(M, {before} + 1)):
        row, match = row_at(P, first + k), load(load(M, {before}), k)
        while left > 0 and load(entry, 1) < first + k:
            entry += {thread_bytes}
            left -= 1
        if left > 0 and load(entry, 1) == first + k:
            drop(M, row)
            store(row, {match}, match)
        else:
            forget(M, match)


@jit()
def again(S, M, P, p, moved):
    """What follows where a row has come (moved: 1) or gone (-1) at place p.

    Rows go through the automaton again until the oldest thread begins behind all that the change is read by,
    and where it did before: what follows then follows as before.
    """
    count = load(P, 2)
    first = p - load(row_at(P, p - 1), {back}) if p > 0 else 0
    store(M, {now} + 1, 0)
    store(M, {before} + 1, 0)
    i = first
    while i < count:
        row = row_at(P, i)
        back = load(row, {back})
        store(push_key(M, {before}, 1), 0, load(row, {match}))
        store(row, {match}, 0)
        step(S, M, P, i)
        if i < p:
            # Threads that began before, and ended before the change, are not looked at again.
            store(row, {back}, back)
        i += 1
        if i - 1 > p + {reach} and load(row, {back}) == back and i - back > p + {reach}:
            replace_matches(M, P, first, True)
            entry = load(P, 4)
            for _ in range(load(P, 5)):
                store(entry, 1, load(entry, 1) + moved)
                entry += {thread_bytes}
            return
    replace_matches(M, P, first, False)
    exchange(M, P)


@jit()
def come(S, M, row):
    """A row comes."""
    P = partition_of(M, row, True)
    come_at(S, M, P, place_of(P, row), row)


@jit()
def come_at(S, M, P, i, row):
    """A row comes at a place."""
    make_room(P, i)
    own = row_at(P, i)
    for word in range({words}):
        store(own, word, load(row, word))
    store(own, {back}, 0)
    store(own, {match}, 0)
    if i + 1 == load(P, 2):
        exchange(M, P)
        step(S, M, P, i)
        exchange(M, P)
    else:
        again(S, M, P, i, 1)


@jit()
def go(S, M, row):
    """A row goes."""
    P = partition_of(M, row, False)
    go_at(S, M, P, place_of(P, row), row)


@jit()
def go_at(S, M, P, i, row):
    """The row at a place goes."""
    drop(M, row_at(P, i))
    close_room(P, i)
    if load(P, 2) == 0:
        close_partition(P)
        forget_partition(M, row)
    else:
        again(S, M, P, i, -1)


@jit()
def follow_row(S, M, row, count):
    """A row that was touched, which stands so often now, comes or goes if it is not as it was."""
    P = partition_of(M, row, count != 0)
    if P == 0:
        return
    i = place_of(P, row)
    if i < load(P, 2) and not comes_before(row, row_at(P, i)):
        own, same = row_at(P, i), True
        for word in range(1, {words}):
            same = same and load(own, word) == load(row, word)
        if count != 0 and not same:
            # Another row of the same place, which is touched, too.
            go(S, M, row)
            come(S, M, row)
        elif count == 0 and same:
            go_at(S, M, P, i, row)
    elif count != 0:
        come_at(S, M, P, i, row)


@jit()
def close_partition(P):
    """Gives the memory of a partition back."""
    for i in range(load(P, 2)):
        match = load(row_at(P, i), {match})
        if match != 0:
            release(match)
    release(load(P, 0))
    release(load(P, 4))
    release(P)


@jit()
def cancelled(M, match):
    """Whether an equal match goes, which then is not told either."""
    gone = load(M, {gone})
    for _ in range(load(M, {gone} + 1)):
        if load(gone, {columns}) == 0:
            same = True
            for word in range({columns}):
                same = same and load(gone, word) == load(match, 1 + word)
            if same:
                store(gone, {columns}, 1)
                return True
        gone += {gone_bytes}
    return False


@jit()
def settle(S, M, tell):
    """Tells the triggers of the relation what has gone, then what has come; not what has done both."""
    fresh = load(M, {fresh})
    if load(M, {gone} + 1) <= {few}:
        for k in range(load(M, {fresh} + 1)):
            match = load(fresh, k)
            if load(match, 0) == 1 and cancelled(M, match):
                store(match, 0, 0)
    row = load(M, {gone})
    for _ in range(load(M, {gone} + 1)):
        if load(row, {columns}) == 0:
            {delete}
        row += {gone_bytes}
    for k in range(load(M, {fresh} + 1)):
        match = load(fresh, k)
        if load(match, 0) == 2:
            release(match)
        elif load(match, 0) == 1:
            store(match, 0, 0)
            if tell != 0:
                row = match + 8
                {insert}
    store(M, {gone} + 1, 0)
    store(M, {fresh} + 1, 0)


@exported
def fill(S, M, block):
    """Rows that are there already come, in their order: address of the first, bytes of each, how many, and
    whether the triggers are told of their matches."""
    row = load(block, 0)
    for _ in range(load(block, 2)):
        come(S, M, row)
        row += load(block, 1)
    settle(S, M, load(block, 3))
    return 0


'''
