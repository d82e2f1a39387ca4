"""The monitor: a run's books, views, strategies and health for browsers and websocket clients.

A process of its own serves clients; the run makes frames for it in a share of its time and no more.
docs/protocol.md describes what goes over the websocket.
"""
