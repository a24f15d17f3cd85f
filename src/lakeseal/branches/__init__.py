"""Versioned trees of files: ranges, commits, diff, three-way merge, merge-if."""
