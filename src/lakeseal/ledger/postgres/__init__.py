"""The ledger in a PostgreSQL database."""
