"""Streams: block logs through the nodes of a program into a job's folder, whatever carries the rows."""
