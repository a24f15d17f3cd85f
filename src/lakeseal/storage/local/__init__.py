"""Bytes at keys of a local disk."""
