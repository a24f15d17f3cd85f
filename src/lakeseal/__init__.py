"""Lakeseal: atomic, exactly-once publishing of what Spark writes."""
