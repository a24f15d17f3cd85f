"""For Spark, which looks for sources in modules whose names begin with `pyspark_`: `format("lakeseal")` is known to
every session whose Python has Lakeseal, and `lakeseal.register` need not be called."""

from lakeseal.extras import brought

with brought(__name__):
    from lakeseal.spark.datasource import LakesealDataSource as DefaultSource

__all__ = ["DefaultSource"]
