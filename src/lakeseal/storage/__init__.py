"""Bytes at keys: local disk, memory, S3, GCS, Azure."""
