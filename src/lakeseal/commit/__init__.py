"""Proposing commits: optimistic transactions, the conflict check, the attempt loop, and the seam of owners."""
