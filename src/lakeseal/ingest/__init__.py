"""Pipelines: sources, work units, quality, policies, runs. See `Pipeline`."""

from lakeseal.ingest.config import (
    Check,
    Dataset,
    DirectoryTarget,
    Freshness,
    NullShare,
    PipelineConfig,
    Range,
    Retries,
    TableTarget,
)
from lakeseal.ingest.pipeline import Pipeline
from lakeseal.ingest.runs import DatasetResult, RunResult
from lakeseal.ingest.source import BadRecord, Chunk, Plan, Source, WorkUnit, register_source
from lakeseal.ingest.sources import FilesSource, KafkaSource, SqlSource, TableSource

__all__ = [
    "BadRecord",
    "Check",
    "Chunk",
    "Dataset",
    "DatasetResult",
    "DirectoryTarget",
    "FilesSource",
    "Freshness",
    "KafkaSource",
    "NullShare",
    "Pipeline",
    "PipelineConfig",
    "Plan",
    "Range",
    "Retries",
    "RunResult",
    "Source",
    "SqlSource",
    "TableSource",
    "TableTarget",
    "WorkUnit",
    "register_source",
]
