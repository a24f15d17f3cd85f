"""The HTTP service over a commit owner, its client, and who may do what there."""
