"""The structure of trees, compiled once for all shapes; see library/tree.py."""

from .cache import publish_library

_tree = publish_library("tree")
tree_open = _tree.tree_open
tree_clear = _tree.tree_clear
tree_close = _tree.tree_close
tree_bytes = _tree.tree_bytes
tree_make_room = _tree.tree_make_room
tree_refresh = _tree.tree_refresh
tree_erase = _tree.tree_erase
tree_range_double = _tree.tree_range_double
