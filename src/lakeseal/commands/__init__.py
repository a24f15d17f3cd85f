"""What people ask of a table, a branch or a directory: decided, run by an engine, committed. Knows no engine."""
