"""Exchanges' ordinary frames from bytes to events in compiled code; `exchanges` decodes what is unusual."""
