"""The monitor: a run's books, views, strategies and health for browsers and websocket clients.

A thread of its own serves clients; the run's thread gives it frames, a share of its time and no more.
docs/protocol.md describes what goes over the websocket.
"""
