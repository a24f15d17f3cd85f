"""What a user may say to `format("lakeseal")` when writing, as one value.

`delta.<name>` is a property of the table, if the write creates it; all other names are those in `NAMES`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.write import WriteCommand
from lakeseal.errors import InvalidArgument
from lakeseal.owner.routing import Router
from lakeseal.spark.options import GivenOptions, GivenTable
from lakeseal.storage import StoreSpec

NAMES = (
    "table",
    "catalog",
    "owner",
    "partitionBy",
    "clusterBy",
    "replaceWhere",
    "partitionOverwriteMode",
    "mergeSchema",
    "overwriteSchema",
    "txnAppId",
    "txnVersion",
    "userMetadata",
    "maxRecordsPerFile",
    "targetFileSize",
    "compression",
)
# Spark's own, which it passes along.
_SPARKS = ("path", "checkpointLocation", "queryName")
_PROPERTY = "delta."


class SinkOptions(Struct, frozen=True, kw_only=True):
    table: GivenTable
    properties: dict[str, str] = {}
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    partition_overwrite: str | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None
    user_metadata: str | None = None
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    compression: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SinkOptions:
        properties = {name: text for name, text in options.items() if name.lower().startswith(_PROPERTY)}
        others = {name: text for name, text in options.items() if name not in properties}
        given = GivenOptions.of(others, (*NAMES, *_SPARKS))
        return cls(
            table=GivenTable.of(given, hint="Give it to save(uri) or start(uri)"),
            properties=properties,
            partition_by=listed("partitionBy", given.text("partitionBy")),
            cluster_by=listed("clusterBy", given.text("clusterBy")),
            replace_where=given.text("replaceWhere"),
            partition_overwrite=lowered(given.text("partitionOverwriteMode")),
            merge_schema=given.flag("mergeSchema"),
            overwrite_schema=given.flag("overwriteSchema"),
            txn_app_id=given.text("txnAppId"),
            txn_version=given.number("txnVersion"),
            user_metadata=given.text("userMetadata"),
            max_records_per_file=given.number("maxRecordsPerFile", least=1),
            target_file_size=given.number("targetFileSize", least=1),
            compression=lowered(given.text("compression")),
        )

    @property
    def store(self) -> StoreSpec:
        return self.table.store

    def open(self) -> Router:
        return self.table.open(creates=True)

    def command(self, *, overwrite: bool) -> WriteCommand:
        return WriteCommand(
            mode="overwrite" if overwrite else "append",
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            replace_where=self.replace_where,
            partition_overwrite=self.partition_overwrite,
            overwrite_schema=self.overwrite_schema,
            txn=self._txn,
            user_metadata=self.user_metadata,
            properties=self.properties,
            options=WriteOptions(
                merge_schema=self.merge_schema,
                max_records_per_file=self.max_records_per_file,
                target_file_size=self.target_file_size,
                compression=self.compression,
            ),
        )

    @property
    def _txn(self) -> tuple[str, int] | None:
        if self.txn_app_id is None and self.txn_version is None:
            return None
        if self.txn_app_id is None or self.txn_version is None:
            raise InvalidArgument("txnAppId and txnVersion go together", hint="Give both, or neither")
        return self.txn_app_id, self.txn_version


def listed(name: str, text: str | None) -> tuple[str, ...] | None:
    if text is None or not text.startswith("["):
        return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(
            f"The option {name} is not a list of names: {error}", hint='For instance a,b or ["a", "b"]'
        ) from error


def lowered(text: str | None) -> str | None:
    return None if text is None else text.lower()
