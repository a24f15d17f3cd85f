"""Pipelines: sources, work units, quality, policies, runs. See `Pipeline`."""

from lakeseal.ingest.alerts import Alert
from lakeseal.ingest.config import (
    BranchTarget,
    Check,
    Dataset,
    DirectoryTarget,
    Freshness,
    NullShare,
    PipelineConfig,
    Retries,
    RowCount,
    TableTarget,
)
from lakeseal.ingest.lineage import Lineage
from lakeseal.ingest.metrics import RunMetrics
from lakeseal.ingest.pipeline import Pipeline
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.runs import DatasetResult, RunResult
from lakeseal.ingest.sources import (
    DatasetsSource,
    FilesSource,
    KafkaSource,
    PostgresSource,
    RestSource,
    SqlSource,
    TableSource,
)
from lakeseal.ingest.sources.source import Chunk, Plan, RejectedRecord, Source, WorkUnit, register_source

__all__ = [
    "Alert",
    "BranchTarget",
    "Check",
    "Chunk",
    "Dataset",
    "DatasetResult",
    "DatasetsSource",
    "DirectoryTarget",
    "FilesSource",
    "Freshness",
    "KafkaSource",
    "Lineage",
    "NullShare",
    "Pipeline",
    "PipelineConfig",
    "Plan",
    "PostgresSource",
    "PythonTransform",
    "RejectedRecord",
    "RestSource",
    "Retries",
    "RowCount",
    "RunMetrics",
    "RunResult",
    "Source",
    "SqlSource",
    "TableSource",
    "TableTarget",
    "WorkUnit",
    "register_source",
]
