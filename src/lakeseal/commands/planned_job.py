"""A job whose files no table's log describes, on a branch or in a directory, in the three steps of a command.

`decide` says what tasks are to do, tasks write files that nobody sees, and `commit` makes of their messages what
readers see. The steps may be in different processes, as Spark has it; whoever has all of them uses `run`.

The data's own schema is the files'. Columns of `partition_by` go into directories, as Hive and Spark name them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from lakeseal.commands.transactional_write import DEFAULT_TARGET_FILE_SIZE
from lakeseal.errors import InvalidArgument, located
from lakeseal.files.file_format import FileFormat
from lakeseal.files.file_schema import FileSchema
from lakeseal.files.parquet_file import Compression
from lakeseal.jobs.engine import InPlan, WriteInput
from lakeseal.jobs.file_commit_protocol import TaskCommitMessage
from lakeseal.jobs.job import CommitProtocolSpec, WriteJobSpec, partition_fields
from lakeseal.jobs.task_logging import driver_level
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType
from lakeseal.storage import StoreSpec

Result = TypeVar("Result")


class PlannedJob(ABC, Generic[Result]):
    def __init__(self, place: str, data: StructType, format: FileFormat, partition_by: Sequence[str]) -> None:
        """`place` is what errors call the destination."""
        with located(table=place):
            self.schema = _columns_of_files(data)
            self.partition_by = _partition_columns(self.schema, partition_by)
            FileSchema(self.schema, self.partition_by, mapped=False)
            format.check(self.schema)
        self._format = format

    @abstractmethod
    def decide(self) -> WriteJobSpec | Result:
        """What tasks are to do, or the result if there is nothing to do."""

    @abstractmethod
    def commit(self, messages: Sequence[TaskCommitMessage]) -> Result: ...

    @abstractmethod
    def abort(self) -> None:
        """After a failure of any step. What may count, though nobody knows yet, stays."""

    def run(self, source: WriteInput) -> Result:
        spec = self.decide()
        if not isinstance(spec, WriteJobSpec):
            return spec
        try:
            return self.commit(source.run(spec, InPlan()))
        except BaseException:
            self.abort()
            raise

    def _spec(
        self,
        job_id: str,
        store: StoreSpec,
        protocol: CommitProtocolSpec,
        *,
        target_file_size: int | None,
        max_records_per_file: int | None,
        **options: Any,
    ) -> WriteJobSpec:
        """`options` are a job's own."""
        format = self._format
        return WriteJobSpec(
            job_id=job_id,
            store=store,
            protocol=protocol,
            schema=self.schema.to_json(),
            partition_columns=self.partition_by,
            compression=Compression(format.codec) if format.name == "parquet" else Compression(),
            target_file_size=target_file_size or DEFAULT_TARGET_FILE_SIZE,
            max_records_per_file=max_records_per_file,
            stats=None,
            format=format,
            log_level=driver_level(),
            **options,
        )


def _columns_of_files(data: StructType) -> StructType:
    """Columns as files have them: any may be null, and what other tables noted about them does not count here."""
    return StructType(tuple(StructField(field.name, _nullable(field.type), True) for field in data.fields))


def _nullable(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return _columns_of_files(data_type)
        case ArrayType(element=element):
            return ArrayType(_nullable(element))
        case MapType(key=key, value=value):
            return MapType(_nullable(key), _nullable(value))
        case _:
            return data_type


def _partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    found = tuple(field.name for field in partition_fields(schema, names))
    if len({name.lower() for name in found}) < len(found):
        raise InvalidArgument(f"A column partitions twice: {', '.join(found)}", hint="Name each column once")
    return found
