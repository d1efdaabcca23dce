"""Worked pairs of an original training loop and our own package of it."""
