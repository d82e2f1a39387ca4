"""Sinks: changes of views' rows sent on to databases and brokers, at least once, with their versions."""
