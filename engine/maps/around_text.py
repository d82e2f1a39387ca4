"""Template of the function of an ordered store that looks once at a key for all that is done there."""

from string import Template

AROUND = Template('''

@jit(forceinline=True)
def around(H, $prefix_first key):
    """The sums over the keys below `key`, at it and above it; what follows at that key is found at once."""
    tree = record(H$comma_prefix)
    if tree == 0:
        return $zeros
    node = load(tree, 0)
$tops
$no_sums
    level = load(tree, 1)
    while level > 0:
        position = min(count_at_most(node + 8 * KEYS, key, $fan_out), load(node, COUNT)) - 1
        store(H, PATH + 2 * level, node)
        store(H, PATH + 2 * level + 1, position)
$accumulate
        node = load(node, CHILDREN + position)
        level -= 1
    position = count_below(node + 8 * KEYS, key, $fan_out)
    after = count_at_most(node + 8 * KEYS, key, $fan_out)
    store(H, PATH, node)
    store(H, PATH + 1, position)
    store(H, AROUND, tree)
    store(H, AROUND_KEY, key)
$below
$at
$above
    return $result
''')
