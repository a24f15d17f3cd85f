"""Running on executors: the write job over DataFrames, scans, the streaming sink and source, `format("lakeseal")`.

Only this room (and `ingest`) imports pyspark, and of pyspark only what Spark Connect has too: DataFrames, streams and
Python data sources.
"""
