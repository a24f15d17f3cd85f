"""Ratifying: the commit owner on the ledger, its client side, take-over and release, several tables at once."""
