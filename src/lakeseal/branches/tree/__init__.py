"""Trees of files as values in files: ranges, nodes, commits, diffs, edits, three-way merges. Moves no branch."""
