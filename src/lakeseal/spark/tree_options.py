"""What a user may say to `format("lakeseal")` about directories on branches, as values.

`load(uri)` and `save(uri)` name the repository, `directory` the path on the branch. `ref` makes a read one of a
repository, `branch` a write; without them both are about tables. The ledger is given by `ledger` or LAKESEAL_LEDGER.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lakeseal.branches import embedded
from lakeseal.branches.store import BranchStore
from lakeseal.commands.branch_write import BranchWriteCommand
from lakeseal.errors import InvalidArgument
from lakeseal.files.file_format import FileFormat
from lakeseal.files.tree_scan import TreeScan, scan
from lakeseal.protocol.schema import StructType
from lakeseal.spark.options import GivenOptions
from lakeseal.spark.sink_options import listed, lowered

_LAKEFS = "lakefs://"
_LEDGER = "LAKESEAL_LEDGER"
_PLACE = ("path", "ledger", "directory", "fileFormat", "header")
READ = (*_PLACE, "ref", "timeZone")
WRITE = (
    *_PLACE,
    "branch",
    "partitionBy",
    "partitionOverwriteMode",
    "compression",
    "message",
    "jobId",
    "maxRecordsPerFile",
    "targetFileSize",
)


def is_of_repository(options: Mapping[str, str]) -> bool:
    return any(name.lower() in ("ref", "branch") for name in options)


class RepositoryPlace(Struct, frozen=True, kw_only=True):
    uri: str
    ledger: str | None = None
    storage_options: dict[str, str] = {}

    @classmethod
    def of(cls, given: GivenOptions) -> RepositoryPlace:
        uri = given.text("path")
        if not uri:
            raise InvalidArgument("The repository's location is missing", hint="Give it to load(uri) or save(uri)")
        ledger = given.text("ledger") or os.environ.get(_LEDGER)
        return cls(uri=uri, ledger=ledger, storage_options=dict(given.storage))

    def open(self) -> BranchStore:
        if self.uri.startswith(_LAKEFS):
            from lakeseal.branches import lakefs  # its packages are an extra

            return lakefs.open(self.uri, storage_options=self.storage_options)
        return embedded.open(self.uri, ledger=self.ledger, storage_options=self.storage_options)


class TreeReadOptions(Struct, frozen=True, kw_only=True):
    place: RepositoryPlace
    ref: str
    directory: str = ""
    format: str | None = None
    header: bool = False
    zone: str = "UTC"
    """Of moments in texts that name none. A source of Spark is not told the session's."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TreeReadOptions:
        given = GivenOptions.of(options, READ)
        ref = given.text("ref")
        if not ref:
            raise InvalidArgument("The option ref is missing", hint="Name a branch, a tag or a commit")
        return cls(
            place=RepositoryPlace.of(given),
            ref=ref,
            directory=given.text("directory") or "",
            format=lowered(given.text("fileFormat")),
            header=given.flag("header"),
            zone=given.text("timeZone") or "UTC",
        )

    def pinned(self) -> TreeReadOptions:
        """The same for the commit that the ref stands for now."""
        return msgspec.structs.replace(self, ref=self.place.open().head(self.ref))

    def scan(self, schema: StructType | None = None) -> TreeScan:
        store = self.place.open()
        found = scan(store, self.ref, self.directory, schema=schema, format=self.format, header=self.header)
        return found.at_zone(self.zone)


class TreeSinkOptions(Struct, frozen=True, kw_only=True):
    place: RepositoryPlace
    command: BranchWriteCommand

    @classmethod
    def from_options(cls, options: Mapping[str, str], *, overwrite: bool) -> TreeSinkOptions:
        given = GivenOptions.of(options, WRITE)
        branch, directory = given.text("branch"), given.text("directory")
        if not branch or not directory:
            raise InvalidArgument("The options branch and directory go together", hint="Say where on which branch")
        optional: dict[str, Any] = {
            "partition_overwrite": lowered(given.text("partitionOverwriteMode")),
            "message": given.text("message") or "",
            "job_id": given.text("jobId"),
            "max_records_per_file": given.number("maxRecordsPerFile", least=1),
            "target_file_size": given.number("targetFileSize", least=1),
        }
        command = BranchWriteCommand(
            branch=branch,
            path=directory,
            mode="overwrite" if overwrite else "append",
            format=FileFormat(
                name=lowered(given.text("fileFormat")) or "parquet",
                compression=lowered(given.text("compression")),
                header=given.flag("header"),
            ),
            partition_by=listed("partitionBy", given.text("partitionBy")) or (),
            **optional,
        )
        return cls(place=RepositoryPlace.of(given), command=command)
