"""The protocol that engines speak to a catalog that decides on commits: UC Delta API v1, and preview commits."""
