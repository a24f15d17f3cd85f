"""The kinds of sources that come with Lakeseal; importing this makes them known."""

from lakeseal.ingest.sources.datasets import DatasetsSource
from lakeseal.ingest.sources.files import FilesSource
from lakeseal.ingest.sources.kafka import KafkaSource
from lakeseal.ingest.sources.postgres import PostgresSource
from lakeseal.ingest.sources.rest import RestSource
from lakeseal.ingest.sources.sql import SqlSource
from lakeseal.ingest.sources.table import TableSource

__all__ = [
    "DatasetsSource",
    "FilesSource",
    "KafkaSource",
    "PostgresSource",
    "RestSource",
    "SqlSource",
    "TableSource",
]
