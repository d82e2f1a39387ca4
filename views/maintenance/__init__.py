"""From views in the calculus to triggers: deltas, the reach of a change, and what becomes a map."""
