"""Bytes at keys of object stores and of memory, through obstore."""
