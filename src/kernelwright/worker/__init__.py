"""Isolated processes: one for the problem (the oracle), one for the candidate, and what happens when they die."""
