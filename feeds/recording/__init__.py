"""Recordings of live feeds: written, read, and replayed through the decoder that took them."""
