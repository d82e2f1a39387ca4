"""Eventual and periodic consistency between the nodes of a distributed program (Cumulus, section 4).

Switches send stamped blocks; nodes run stages over what has come, take back and correct what a late block
makes wrong, and commit epochs. Nothing here knows how messages travel: `node` and `switch` are given messages
and say which to send.
"""
