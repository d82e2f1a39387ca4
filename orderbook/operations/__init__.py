"""How a run is watched and explained: logs, metrics, its summary, and why a row is as it is."""
