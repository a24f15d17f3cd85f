"""A pipeline as its user writes it, in YAML or in Python: frozen values with their defaults.

A `Dataset` goes from one source to one target. What belongs to all of them is the pipeline's: its name (under which the
ledger keeps watermarks, runs and open sequences) and its ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from lakeseal.backoff import Backoff
from lakeseal.catalog.place import locate
from lakeseal.catalog.table_name import may_be_name
from lakeseal.errors import InvalidArgument
from lakeseal.expr.render import quote_name
from lakeseal.ingest.alerts import Alert
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.lineage import Lineage
from lakeseal.ingest.metrics import RunMetrics
from lakeseal.ingest.python_transform import PythonTransform
from lakeseal.ingest.sources.source import Source
from lakeseal.ledger import parse as parse_ledger
from lakeseal.owner.connect import is_service
from lakeseal.protocol.feed_columns import CHANGE_TYPE
from lakeseal.storage.location import parse as parse_location

if TYPE_CHECKING:
    from lakeseal.catalog.connect import CatalogLike

Delivery = Literal["exactly_once", "at_least_once"]
CommitPolicy = Literal["full", "successful", "partial"]
OnRowFailure = Literal["fail", "error_table", "warn"]
OnBadRecord = Literal["fail", "error_table", "skip"]
Mode = Literal["append", "upsert", "scd2", "replace", "cdc"]


class RowCount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    min: int | None = None
    """At least so many rows."""
    max: int | None = None
    """At most so many rows."""

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise InvalidArgument("A range has a min, a max, or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InvalidArgument(f"No number of rows is at least {self.min} and at most {self.max}")


class NullShare(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    column: str
    """Whose nulls are counted."""
    max: float
    """The largest share of them, from 0 to 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.max <= 1:
            raise InvalidArgument(f"The share of nulls is between 0 and 1, not {self.max:g}")


class Freshness(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    column: str
    """A timestamp."""
    max_age_seconds: float
    """How old the newest row may be."""

    def __post_init__(self) -> None:
        if not self.max_age_seconds >= 0:
            raise InvalidArgument(f"freshness: no row is younger than max_age_seconds: {self.max_age_seconds:g}")


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule: of each row (`rule`), or of the dataset as a whole (the others)."""

    rule: str | None = None
    """A SQL condition that each row must meet; null is a failure."""
    rows: RowCount | None = None
    """How many rows a run may bring."""
    nulls: NullShare | None = None
    """How many of them may lack a value."""
    freshness: Freshness | None = None
    """How old the newest row may be."""
    schema: Literal["compatible", "equal"] | None = None
    """How the rows' columns must be to those of a table that is there already."""
    on_fail: OnRowFailure = "fail"
    """fail: nothing of the dataset is published. error_table: such rows go there. warn: the run says so."""

    def __post_init__(self) -> None:
        named = [name for name in ("rule", "rows", "nulls", "freshness", "schema") if getattr(self, name) is not None]
        if len(named) != 1:
            raise InvalidArgument(
                "A rule of quality is one of rule, rows, nulls, freshness, schema",
                hint='Write {rule: "id IS NOT NULL", on_fail: error_table}, or {rows: {min: 1}}',
            )
        if self.on_fail == "error_table" and self.rule is None:
            raise InvalidArgument(f"{named[0]} is about all rows: none of them can go to the error table")

    @property
    def name(self) -> str:
        if self.rule is not None:
            return self.rule
        if self.rows is not None:
            return "rows"
        if self.nulls is not None:
            return f"nulls of {self.nulls.column}"
        return "schema" if self.freshness is None else f"freshness of {self.freshness.column}"


_OF_KEYS = ("keys", "sequence_by", "delete_when", "partial", "remember_deletes_seconds")


class TableTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="table", tag_field="type"):
    uri: str
    """Where the table is, or its name in the catalog."""
    partition_by: tuple[str, ...] = ()
    """Of a table that is made."""
    owner: Literal["ledger", "none"] = "ledger"
    """Who decides on commits to a table that is made: the pipeline's ledger, so that rows and watermarks of all
    datasets are one transaction, or the file system. A table that is there stays as it is."""
    merge_schema: bool = False
    """Columns that the table lacks are added to it."""
    properties: dict[str, str] = {}
    """Of a table that is made."""
    storage_options: dict[str, str] = {}
    mode: Mode = "append"
    """What rows do to those that are there: come beside them (append), take the place of that with the same keys
    (upsert), end it and keep it (scd2), take the place of all (replace). cdc: rows are changes, and say which."""
    keys: tuple[str, ...] = ()
    """Columns that tell rows apart."""
    sequence_by: str | None = None
    """A column that grows with each change of a key: it tells late and repeated rows from new ones. Without one, the
    order in which rows come decides."""
    delete_when: str | None = None
    """A SQL condition: such a row says that its key is gone."""
    partial: bool = False
    """A null leaves what the table has."""
    remember_deletes_seconds: float | None = None
    """How long rows that come late find out that their key is gone; for ever if it is not given."""

    def __post_init__(self) -> None:
        idle: dict[str, tuple[str, ...]] = {
            "append": _OF_KEYS,
            "replace": _OF_KEYS,
            "upsert": (),
            "scd2": ("partial",),
            "cdc": ("delete_when",),
        }
        refuse_idle(self, idle[self.mode], f"in the mode {self.mode!r}")
        if self.mode in ("upsert", "scd2", "cdc") and not self.keys:
            raise InvalidArgument(f"The mode {self.mode!r} needs the columns that tell rows apart", hint="keys: [id]")
        if self.mode == "scd2" and self.sequence_by is None:
            raise InvalidArgument("scd2 needs a column that says when a row became true", hint="sequence_by: at")
        if not self.remembers_deletes:
            refuse_idle(
                self,
                ["remember_deletes_seconds"],
                "without a sequence_by, and rows that delete",
                "Add sequence_by, and delete_when or mode: cdc; or leave it out",
            )
        if self.remember_deletes_seconds is not None and not self.remember_deletes_seconds >= 0:
            raise InvalidArgument(f"remember_deletes_seconds must be 0 or more, not {self.remember_deletes_seconds:g}")

    @property
    def remembers_deletes(self) -> bool:
        """Whether a row may come late, and find its key gone."""
        return self.sequence_by is not None and (self.delete_when is not None or self.mode == "cdc")

    @property
    def deletes_uri(self) -> str:
        """The table beside it that remembers deletes."""
        return f"{self.uri.rstrip('/')}_deletes"


class DirectoryTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="directory", tag_field="type"):
    path: str
    """A directory on any store; runs add files to it."""
    format: Literal["parquet", "json", "csv", "orc"] = "parquet"
    """Of the files."""
    compression: str | None = None
    """By Spark's names; the format's own default if it is not given."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values are directories."""
    storage_options: dict[str, str] = {}


class BranchTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="branch", tag_field="type"):
    """Files on a branch of a repository: written and judged on a branch of their own, then merged."""

    repository: str
    """Its heads are in its own ledger, on disk, or in the pipeline's."""
    path: str
    """The directory on the branch."""
    branch: str = "main"
    """Which files are merged into."""
    mode: Literal["append", "replace"] = "append"
    """Whether files come beside those in the directory, or in their place."""
    format: Literal["parquet", "json", "csv", "orc"] = "parquet"
    """Of the files."""
    compression: str | None = None
    """By Spark's names; the format's own default if it is not given."""
    partition_by: tuple[str, ...] = ()
    """Columns whose values are directories."""
    storage_options: dict[str, str] = {}


Target = TableTarget | DirectoryTarget | BranchTarget


def place_of(target: Target) -> str:
    """Where the target is, or the repository that it is in."""
    match target:
        case TableTarget():
            return target.uri
        case DirectoryTarget():
            return target.path
    return target.repository


class Retries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    times: int = 2
    """How often a dataset is tried again that failed by what may pass."""
    first_pause_seconds: float = 1.0
    """Each pause is twice as long as the one before."""

    def __post_init__(self) -> None:
        if self.times < 0 or self.first_pause_seconds < 0:
            raise InvalidArgument("Retries are 0 or more, with a pause of 0 s or more")

    @property
    def backoff(self) -> Backoff:
        # A run holds its turn: there is nobody to collide with, and the pauses are as they are written.
        return Backoff(first_s=self.first_pause_seconds, least=1.0)


class Dataset(Struct, frozen=True, kw_only=True):
    name: str
    source: Source
    target: Target
    transform: str | PythonTransform | Callable[..., Any] | None = None
    """Spark SQL over `input`, or over the datasets that it is made of; or a function from DataFrames to one."""
    quality: tuple[Check, ...] = ()
    commit: CommitPolicy = "full"
    """What is published when a part of the source can't be read: nothing (full), the partitions that could be read
    (successful), or also what came before the failure (partial)."""
    on_bad_record: OnBadRecord = "fail"
    """A record that is no row stops the dataset (fail), goes to the error table, or is counted and left out (skip)."""
    error_table: str | None = None
    """Where rows and records go that are not published; beside the target if it is not given."""
    timeout_seconds: float = 300.0
    """How long a source may be silent."""
    retries: Retries = Retries()

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 255:
            raise InvalidArgument("A dataset needs a name of at most 255 characters")
        if self.timeout_seconds <= 0:
            raise InvalidArgument("timeout_seconds must be above 0")

    @property
    def rules(self) -> tuple[Check, ...]:
        """Those that are written, and those that the target's mode needs: without a key a row is nobody's."""
        target = self.target
        if not isinstance(target, TableTarget) or target.mode in ("append", "replace"):
            return self.quality
        needed = [*target.keys, *([] if target.sequence_by is None else [target.sequence_by])]
        on_fail: OnRowFailure = "fail" if self.on_bad_record == "fail" else "error_table"
        no_key = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in needed)
        partitions = {name.lower() for name in target.partition_by}
        for name in (name for name in target.keys if name.lower() in partitions):
            # As a partition's value an empty text is null, and would be a new row each time.
            no_key += f" AND CAST({quote_name(name)} AS STRING) <> ''"
        if target.mode == "cdc":  # a truncate has none
            no_key = f"{CHANGE_TYPE} = 'truncate' OR ({no_key})"
        return (*self.quality, Check(rule=no_key, on_fail=on_fail))

    @property
    def place(self) -> str:
        """Where its rows go, as a URI."""
        if isinstance(self.target, BranchTarget):
            target = self.target
            return f"{target.repository.rstrip('/')}/{target.branch}/{target.path.strip('/')}"
        return parse_location(place_of(self.target)).uri

    @property
    def errors_uri(self) -> str:
        if self.error_table is not None:
            return self.error_table
        return f"{place_of(self.target).rstrip('/')}_errors"

    def by_absolute_uris(self) -> Dataset:
        """The same, for processes that work in other directories."""
        target = self.target
        placed: Target
        match target:
            case TableTarget():
                placed = replace(target, uri=parse_location(target.uri).uri)
            case DirectoryTarget():
                placed = replace(target, path=parse_location(target.path).uri)
            case BranchTarget():
                placed = target  # tasks know it by the job that was begun there
        return replace(self, target=placed, error_table=parse_location(self.errors_uri).uri)

    def by_place(self, catalog: CatalogLike | None = None) -> Dataset:
        """The same, with the place of a table that the target names as the catalog does (`sales.orders`)."""
        target = self.target
        if not isinstance(target, TableTarget):
            return self
        # What has no form of a name is a path, also where a catalog is named for others.
        uri = locate(target.uri, catalog if may_be_name(target.uri) else None).uri
        return self if uri == target.uri else replace(self, target=replace(target, uri=uri))


class PipelineConfig(Struct, frozen=True, kw_only=True):
    name: str
    ledger: str
    """sqlite:///path/ledger.db, postgresql://…, or https://…, the address of a service that has one."""
    datasets: tuple[Dataset, ...]
    token: str | None = None
    """Of the service."""
    delivery: Delivery = "exactly_once"
    """at_least_once writes watermarks after the rows, without recording the steps first: a crash in between publishes
    rows again."""
    lease_seconds: float = 60.0
    """How long a run that died keeps others out."""
    max_parallel: int = 8
    """Tasks that a run of all datasets is cut into, at least; more where there is more to read."""
    task_bytes: int = 128 * 2**20
    """About how much one task reads."""
    beside: tuple[Dataset, ...] = ()
    """Datasets that are left alone, and that others may be made of."""
    alerts: tuple[Alert, ...] = ()
    lineage: Lineage | None = None
    metrics: RunMetrics | None = None

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 255:
            raise InvalidArgument("A pipeline needs a name of at most 255 characters")
        if not self.datasets:
            raise InvalidArgument("A pipeline needs at least one dataset")
        names = [dataset.name for dataset in self.datasets]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidArgument(f"Two datasets are called {twice!r}", hint="Watermarks go by the name")
        targets = [_place(dataset.target) for dataset in self.datasets]
        shared = next((place for place in targets if targets.count(place) > 1), None)
        if shared is not None:
            raise InvalidArgument(f"Two datasets go to {shared}", hint="Give each its own target")
        if self.lease_seconds < 1 or self.max_parallel < 1 or self.task_bytes < 1:
            raise InvalidArgument("lease_seconds, max_parallel and task_bytes must be at least 1")
        if is_service(self.ledger):
            return
        if self.token is not None:
            raise InvalidArgument("A token is for a service, and this ledger is none's", hint="Leave token out")
        where = parse_ledger(self.ledger)
        if where.kind == "memory":
            raise InvalidArgument(
                "A ledger in memory forgets what was published", hint="Use a file: sqlite:///ledger.db"
            )
        # Absolute, so that it is the same file in a task.
        force_setattr(self, "ledger", where.connect)

    def __repr__(self) -> str:
        # The ledger's URL may hold a password.
        return f"PipelineConfig(name={self.name!r}, datasets={[dataset.name for dataset in self.datasets]})"


def _place(target: Target) -> str:
    if isinstance(target, BranchTarget):
        return f"{target.path.strip('/')} on {target.branch} of {target.repository.rstrip('/')}"
    return place_of(target).rstrip("/")
