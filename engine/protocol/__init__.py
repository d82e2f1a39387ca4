"""Eventual and periodic consistency between the nodes of a distributed program (Cumulus, section 4)."""
