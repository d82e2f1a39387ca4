"""Programs cut into stages that run in partitions: how they are cut, and how one stage runs."""
