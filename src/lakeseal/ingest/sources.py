"""The kinds of sources that come with Lakeseal; importing this makes them known."""

from lakeseal.ingest.files_source import FilesSource
from lakeseal.ingest.kafka_source import KafkaSource
from lakeseal.ingest.sql_source import SqlSource
from lakeseal.ingest.table_source import TableSource

__all__ = ["FilesSource", "KafkaSource", "SqlSource", "TableSource"]
