"""`lakeseal doctor`: whether this machine and one table are well, and what to do where they are not."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Annotated, Literal

import msgspec
import typer
from msgspec import Struct

from lakeseal.catalog.place import locate
from lakeseal.cli.java import OLDEST, find_java
from lakeseal.cli.options import AsJson, CatalogName, StoreOptions, parse_store_options
from lakeseal.cli.output import Output
from lakeseal.display import counted, size
from lakeseal.errors import LakesealError, MissingOnExecutors, ObjectNotFound, TableNotFound, UnsafePath
from lakeseal.log import last_checkpoint
from lakeseal.log.checkpoint_reader import read_checkpoint
from lakeseal.log.checksum import ChecksumWarning, mismatch
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.segment import LogListing, choose, sort_out
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.data_paths import resolve_data_path
from lakeseal.protocol.features import check_writable
from lakeseal.protocol.paths import LAST_CHECKPOINT, LOG_DIR, checksum_path
from lakeseal.storage import Store, open_store
from lakeseal.trust import Trust

_REQUIRED = ("lakeseal", "pyarrow", "obstore", "msgspec", "SQLAlchemy")
_OPTIONAL = {"pyspark": "spark", "starlette": "server", "confluent-kafka": "kafka", "lakefs": "lakefs"}
_MANY_COMMITS = 100
_PYTHON_S = 60


class DoctorCheck(Struct, frozen=True, kw_only=True):
    check: str
    status: Literal["ok", "warning", "failed"]
    detail: str


def _of_machine() -> Iterator[DoctorCheck]:
    yield DoctorCheck(check="python", status="ok", detail=f"{platform.python_version()} at {sys.executable}")
    java = find_java()
    if java is None:
        detail = f"no Java {OLDEST} or newer was found; only Spark needs it. Install one, or set JAVA_HOME"
        yield DoctorCheck(check="java", status="warning", detail=detail)
    else:
        yield DoctorCheck(check="java", status="ok", detail=f"{java.version} at {java.home}")
    for name in _REQUIRED:
        found = _installed(name)
        if found is None:
            yield DoctorCheck(
                check=name, status="failed", detail="is not installed: run pip install --upgrade lakeseal"
            )
        else:
            yield DoctorCheck(check=name, status="ok", detail=found)
    for name, extra in _OPTIONAL.items():
        found = _installed(name)
        detail = found or f"is not installed; where you need it: pip install 'lakeseal[{extra}]'"
        yield DoctorCheck(check=name, status="ok", detail=detail)
    if _installed("pyspark") is not None:
        yield _workers()


def _workers() -> DoctorCheck:
    """Whether the Python that Spark's workers are said to be could run our tasks."""
    python = os.environ.get("PYSPARK_PYTHON")
    if not python:
        detail = "on this machine they are this Python; elsewhere set spark.pyspark.python to one that has Lakeseal"
        return DoctorCheck(check="spark workers", status="ok", detail=detail)
    try:
        asked = [python, "-c", "import lakeseal.jobs.job, platform; print(platform.python_version())"]
        # Whoever set the variable has Spark run the very same.
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=_PYTHON_S, check=False)  # noqa: S603
        told = ran.stdout.strip() if ran.returncode == 0 else ran.stderr.strip().rpartition("\n")[2]
    except (OSError, subprocess.TimeoutExpired) as error:
        ran, told = None, str(error)
    if ran is None or ran.returncode != 0:
        detail = f"PYSPARK_PYTHON={python} cannot run tasks: {told}. {MissingOnExecutors.default_hint}"
        return DoctorCheck(check="spark workers", status="warning", detail=detail)
    if told.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
        detail = f"PYSPARK_PYTHON={python} is {told}, and Spark wants the driver's {platform.python_version()}"
        return DoctorCheck(check="spark workers", status="warning", detail=detail)
    return DoctorCheck(check="spark workers", status="ok", detail=f"{told} at {python}")


def _of_table(uri: str, storage_options: Mapping[str, str] | None, *, look_for_files: bool) -> Iterator[DoctorCheck]:
    """The checks build on each other, so the first one that fails is the last one made."""
    try:
        store = open_store(uri, storage_options)
        listing, answered = _store(store)
        yield answered
        if listing.is_empty():
            raise TableNotFound("There is no Delta table here", table=store.uri)
        yield _log(listing)
        yield _hint(store)
        yield _checkpoint(store, listing)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChecksumWarning)  # it gets a check of its own
            snapshot = DeltaLog(store, trust=Trust(insist_on_checksums=False)).snapshot()
        yield DoctorCheck(
            check="snapshot",
            status="ok",
            detail=f"version {snapshot.version}: {counted(snapshot.files.num_rows, 'file')}, "
            f"{size(snapshot.size_in_bytes)}",
        )
        yield _checksum(store, snapshot)
        yield _attempt("writing", lambda: _writable(snapshot))
        if look_for_files:
            yield _data_files(store, snapshot)
    except LakesealError as error:
        yield DoctorCheck(check="table", status="failed", detail=str(error))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _store(store: Store) -> tuple[LogListing, DoctorCheck]:
    start = time.perf_counter()
    names = store.list_keys(LOG_DIR)
    took = (time.perf_counter() - start) * 1000
    detail = f"{store.uri} answers: {len(names):,} names in {LOG_DIR} in {took:.0f} ms"
    return sort_out(names), DoctorCheck(check="store", status="ok", detail=detail)


def _log(listing: LogListing) -> DoctorCheck:
    segment = choose(listing)
    above = len(segment.commits)
    base = f"checkpoint {segment.checkpoint_version}" if segment.checkpoint else "no checkpoint"
    detail = f"version {segment.version} is {base} and {above:,} commit file(s)"
    if above > _MANY_COMMITS:
        detail += "; every reader reads them all. Write a checkpoint: lakeseal.Table(uri).checkpoint()"
        return DoctorCheck(check="log", status="warning", detail=detail)
    if listing.incomplete:
        detail += f"; parts are missing beside {listing.incomplete[0].name}, which readers pass over"
        return DoctorCheck(check="log", status="warning", detail=detail)
    return DoctorCheck(check="log", status="ok", detail=detail)


def _hint(store: Store) -> DoctorCheck:
    try:
        hint = last_checkpoint.parse(store.get(LAST_CHECKPOINT))
    except ObjectNotFound:
        return DoctorCheck(check="_last_checkpoint", status="ok", detail="absent; it is only a hint")
    if hint is None:
        detail = "torn or wrong; readers list the whole log instead. The next checkpoint mends it"
        return DoctorCheck(check="_last_checkpoint", status="warning", detail=detail)
    return DoctorCheck(check="_last_checkpoint", status="ok", detail=f"points at version {hint.version}")


def _checkpoint(store: Store, listing: LogListing) -> DoctorCheck:
    segment = choose(listing)
    if not segment.checkpoint:
        return DoctorCheck(check="checkpoint", status="ok", detail="there is none yet")
    try:
        state = read_checkpoint(store, segment.checkpoint_version, segment.checkpoint)
    except LakesealError as error:
        return DoctorCheck(check="checkpoint", status="warning", detail=f"readers fall back to the commits: {error}")
    detail = f"version {state.version} reads well: {counted(state.files.num_rows, 'file')}"
    return DoctorCheck(check="checkpoint", status="ok", detail=detail)


def _checksum(store: Store, snapshot: Snapshot) -> DoctorCheck:
    try:
        found = mismatch(snapshot, store.get(checksum_path(snapshot.version)))
    except ObjectNotFound:
        return DoctorCheck(check="checksum", status="ok", detail="this version has none; they are optional")
    if found is not None:
        return DoctorCheck(check="checksum", status="warning", detail=str(found))
    return DoctorCheck(check="checksum", status="ok", detail="the log fits its version checksum")


def _writable(snapshot: Snapshot) -> str:
    check_writable(snapshot.protocol, snapshot.metadata)
    return "every feature of the table is known here"


def _data_files(store: Store, snapshot: Snapshot) -> DoctorCheck:
    sizes = {meta.key: meta.size for meta in store.list(recursive=True)}
    missing, other, outside = [], [], 0
    for path, expected in zip(*(snapshot.files.column(name).to_pylist() for name in ("path", "size")), strict=True):
        try:
            key = resolve_data_path(store.uri, path).key
        except UnsafePath:
            outside += 1
            continue
        found = sizes.get(key)
        if found is None:
            missing.append(key)
        elif found != expected:
            other.append(key)
    if missing or other:
        first = (missing or other)[0]
        detail = f"{len(missing):,} missing, {len(other):,} of another size than the log says; the first is {first}"
        return DoctorCheck(check="data files", status="failed", detail=detail)
    detail = f"{snapshot.files.num_rows - outside:,} are there, each of the size that the log says"
    if outside:
        return DoctorCheck(check="data files", status="warning", detail=f"{detail}; {outside:,} outside of the table")
    return DoctorCheck(check="data files", status="ok", detail=detail)


def _attempt(name: str, look: Callable[[], str]) -> DoctorCheck:
    try:
        return DoctorCheck(check=name, status="ok", detail=look())
    except LakesealError as error:
        return DoctorCheck(check=name, status="warning", detail=str(error))


commands = typer.Typer()


@commands.command()
def doctor(
    ctx: typer.Context,
    uri: Annotated[str | None, typer.Argument(help="A table to look at as well.", show_default=False)] = None,
    files: Annotated[bool, typer.Option("--files", help="Look for every data file of the table, too.")] = False,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Look at this machine and, if one is named, at a table. Exit code 1 if something has failed."""
    out: Output = ctx.obj
    place = None if uri is None else locate(uri, catalog).uri
    of_table = () if place is None else _of_table(place, parse_store_options(option), look_for_files=files)
    found = list(chain(_of_machine(), of_table))
    out.rows((msgspec.to_builtins(check) for check in found), ["check", "status", "detail"])
    if any(check.status == "failed" for check in found):
        raise typer.Exit(1)
