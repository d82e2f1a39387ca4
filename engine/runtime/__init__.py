"""The engine: a compiled program on a runtime, its rows, state, views and subscriptions."""
