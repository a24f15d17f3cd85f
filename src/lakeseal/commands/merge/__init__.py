"""MERGE: rows of a source change, delete and add rows of a table, in one transaction."""
