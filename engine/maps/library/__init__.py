"""Sources of the map library that are published once for all shapes; see engine/maps/runtime.py."""
