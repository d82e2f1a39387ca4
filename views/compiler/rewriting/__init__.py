"""Rewrites of the calculus: simplification rule by rule, names, canonical forms."""
