"""One write job: what its tasks do, the commit protocols, and the seam of who runs tasks. Knows no commands."""
