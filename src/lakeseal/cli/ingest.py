"""`lakeseal ingest`: run pipelines, and see what they did."""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from lakeseal.cli.ingest_results import moment, run_line, show_run
from lakeseal.cli.options import AsJson, CatalogName, Newest
from lakeseal.cli.output import Output
from lakeseal.cli.spark_session import spark_session
from lakeseal.durations import SUCH_AS, seconds_of
from lakeseal.errors import AlreadyExists, InvalidArgument, LakesealError, LeaseHeld
from lakeseal.ingest.config import Dataset
from lakeseal.ingest.graph import inputs_of
from lakeseal.ingest.pipeline import Pipeline
from lakeseal.ingest.pipeline_books import PipelineBooks
from lakeseal.ingest.pipeline_schema import pipeline_schema
from lakeseal.ingest.progress import run_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

commands = typer.Typer()
ingest_commands = typer.Typer(help="Run pipelines from sources to targets, each row once.", no_args_is_help=True)
commands.add_typer(ingest_commands, name="ingest")

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's YAML.", show_default=False)]
Env = Annotated[
    str | None, typer.Option("--env", metavar="NAME", help="One of the file's environments.", show_default=False)
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=TEXT", help="A parameter of the file; may be repeated.", show_default=False),
]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs: local[N], spark://…")]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Tasks are threads of this process; DuckDB does SQL.")]
Wait = Annotated[bool, typer.Option("--wait", help="While another run is at work, wait until it has ended.")]
_TELL_EVERY_S = 5.0


@ingest_commands.command("run")
def run(
    ctx: typer.Context,
    file: File,
    master: Master = "local[2]",
    no_spark: NoSpark = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Again and again, such as 30s, 15m, 2h or 1d.", show_default=False)
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="Only this one; may be repeated.", show_default=False)
    ] = None,
    wait: Wait = False,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Bring in what is new. Exit code 1 if a dataset was not published.

    With --every, Ctrl-C and SIGTERM let the run at work come to its end, and then the exit code is 0; a second one ends
    it at once, and the next run goes on from there."""
    out: Output = ctx.obj
    pipeline = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog)
    spark = None if no_spark else _Spark(pipeline.name, master)
    names = [one.name for one in pipeline.config.datasets]
    if every is None:
        with run_progress(pipeline.name, names) as progress:
            waiting = _Waiting(out) if wait else None
            result = pipeline.run(spark, datasets=dataset, check=False, progress=progress, waiting=waiting)
        show_run(out, result)
        raise typer.Exit(1 if result.state in ("failed", "partly") else 0)
    if dataset:
        raise typer.BadParameter("--every runs all datasets", param_hint="--dataset")
    if wait:
        raise typer.BadParameter("--every comes again by itself when another run has ended", param_hint="--wait")
    seconds, stop = _seconds(every), _stopped_by_signals()
    with run_progress(pipeline.name, names) as progress:
        for result_or_error in pipeline.run_every(spark, seconds, stop=stop, progress=progress):
            if isinstance(result_or_error, LakesealError):
                out.error(result_or_error)
            else:
                show_run(out, result_or_error)


@ingest_commands.command("backfill")
def backfill(
    ctx: typer.Context,
    file: File,
    dataset: Annotated[str, typer.Argument(help="The dataset's name.", show_default=False)],
    first: Annotated[
        str,
        typer.Option(
            "--from",
            help="Names of files, values of a column, offsets or versions, as its source has.",
            show_default=False,
        ),
    ],
    last: Annotated[str, typer.Option("--to", help="Up to this, and without it.", show_default=False)],
    again: Annotated[bool, typer.Option("--again", help="Even if this span was backfilled before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    master: Master = "local[2]",
    no_spark: NoSpark = False,
    wait: Wait = False,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Publish a span of a dataset's source again; its watermarks stay. Cut off, it goes on where it was.

    Exit code 1 if it was not published."""
    out: Output = ctx.obj
    pipeline = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog)
    if not yes and not out.json and any(one.name == dataset and _appends(one) for one in pipeline.config.datasets):
        typer.confirm(f"Rows of {dataset} that are published will be there twice. Go on?", abort=True)
    spark = None if no_spark else _Spark(pipeline.name, master)
    with run_progress(pipeline.name, [dataset]) as progress:
        waiting = _Waiting(out) if wait else None
        result = pipeline.backfill(
            dataset, first, last, spark, again=again, check=False, progress=progress, waiting=waiting
        )
    show_run(out, result)
    raise typer.Exit(1 if result.state in ("failed", "partly") else 0)


def _appends(dataset: Dataset) -> bool:
    return getattr(dataset.target, "mode", "append") == "append"


@ingest_commands.command("resume")
def resume(
    ctx: typer.Context,
    file: File,
    master: Master = "local[2]",
    no_spark: NoSpark = False,
    wait: Wait = False,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Go on with what earlier runs have left. Exit code 1 if something is left again.

    That is: steps that were set aside, datasets that the last run did not publish, and backfills that were begun."""
    out: Output = ctx.obj
    pipeline = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog)
    spark = None if no_spark else _Spark(pipeline.name, master)
    with run_progress(pipeline.name, [one.name for one in pipeline.config.datasets]) as progress:
        results = pipeline.resume(spark, progress=progress, waiting=_Waiting(out) if wait else None)
    for result in results:
        show_run(out, result)
    if not results:
        out.say("There is nothing to resume")
    raise typer.Exit(1 if any(one.state in ("failed", "partly") for one in results) else 0)


@ingest_commands.command("check")
@ingest_commands.command("validate", hidden=True)  # its name in Python, and here before
def check(
    ctx: typer.Context,
    file: File,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Check the file, its sources and its rules; nothing is read or written. Exit code 1 if something is wrong."""
    out: Output = ctx.obj
    found = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog).validate()
    rows = [
        {"dataset": name, "state": "good" if error is None else "wrong", "reason": "" if error is None else str(error)}
        for name, error in found.items()
    ]
    out.rows(rows, ["dataset", "state", "reason"])
    raise typer.Exit(1 if any(found.values()) else 0)


@ingest_commands.command("plan")
def plan(
    ctx: typer.Context,
    file: File,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Show what a run would read now, in its order. Nothing is written. Exit code 1 if a source can't be looked at."""
    out: Output = ctx.obj
    pipeline = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog)
    found = pipeline.plan()
    behind = {one.name: ", ".join(inputs_of(one)) for one in pipeline.config.datasets}
    rows = [
        {"order": order, "dataset": name, "behind": behind[name], "units": 0, "bytes": 0, "notes": str(one)}
        if isinstance(one, LakesealError)
        else {
            "order": order,
            "dataset": name,
            "behind": behind[name],
            "units": len(one.units),
            "bytes": sum(unit.size for unit in one.units),
            "notes": "; ".join(one.notes),
        }
        for order, (name, one) in enumerate(found.items(), 1)
    ]
    out.rows(rows, ["order", "dataset", "behind", "units", "bytes", "notes"])
    raise typer.Exit(1 if any(isinstance(one, LakesealError) for one in found.values()) else 0)


_FIRST = """\
# lakeseal ingest run pipeline.yaml --no-spark
name: {name}
ledger: sqlite:///ledger.db
datasets:
  - name: people
    source: {{type: files, path: landing/, format: json, schema: "id long, n long, name string, gone boolean"}}
    quality:
      - {{rule: "gone OR name IS NOT NULL", on_fail: error_table}}
    target: {{type: table, uri: lake/people, mode: upsert, keys: [id], sequence_by: n, delete_when: "gone"}}
"""
_FIRST_ROWS = """\
{"id": 1, "n": 1, "name": "Ada"}
{"id": 2, "n": 1, "name": "Bo"}
{"id": 1, "n": 2, "name": "Ada L."}
"""


@ingest_commands.command("init")
def init(
    ctx: typer.Context,
    directory: Annotated[str, typer.Argument(help="Made if it is not there.", show_default=False)],
    json: AsJson = False,
) -> None:
    """Make a project that runs: a pipeline and some rows for it."""
    out: Output = ctx.obj
    place = Path(directory)
    files = {"pipeline.yaml": _FIRST.format(name=_plain_name(place)), "landing/first.json": _FIRST_ROWS}
    there = [name for name in files if (place / name).exists()]
    if there:
        raise AlreadyExists(f"{place / there[0]} is there already", hint="Name another directory")
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    if json:
        out.rows([{"file": str(place / name)} for name in files], ["file"])
    out.say(f"cd {place} && lakeseal ingest run pipeline.yaml --no-spark")


def _plain_name(place: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", place.resolve().name).strip("-") or "pipeline"


@ingest_commands.command("status")
def status(ctx: typer.Context, file: File, env: Env = None, param: Params = None, json: AsJson = False) -> None:
    """Show the newest run, and steps that are not finished."""
    out: Output = ctx.obj
    pipeline = PipelineBooks.from_yaml(file, env=env, params=_params(param))
    newest = next(iter(pipeline.history(1)), None)
    waiting = pipeline.open_sequences()
    if out.json:
        told = None if newest is None else newest.to_json()
        out.record({"pipeline": pipeline.name, "newest": told, "unfinished": dict(waiting)})
        return
    if newest is None:
        out.say(f"{pipeline.name} has not run yet")
    else:
        show_run(out, newest)
    for name, state in waiting.items():
        out.say(f"{name} has steps that are not finished ({state}): lakeseal steps show {pipeline.name} {name}")


@ingest_commands.command("history")
def history(
    ctx: typer.Context,
    file: File,
    limit: Newest = 20,
    env: Env = None,
    param: Params = None,
    json: AsJson = False,
) -> None:
    """Show runs, newest first."""
    out: Output = ctx.obj
    runs = PipelineBooks.from_yaml(file, env=env, params=_params(param)).history(limit)
    rows = (one.to_json() if out.json else run_line(one) for one in runs)
    out.rows(rows, ["run", "state", "started", "seconds", "rows", "datasets", "failed"])


@ingest_commands.command("watermarks")
def watermarks(
    ctx: typer.Context,
    file: File,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Only its.", show_default=False)] = None,
    env: Env = None,
    param: Params = None,
    json: AsJson = False,
) -> None:
    """Show how far each partition of each dataset is published."""
    out: Output = ctx.obj
    marks = PipelineBooks.from_yaml(file, env=env, params=_params(param)).watermarks(dataset)
    rows = (
        {
            "dataset": mark.dataset,
            "partition": mark.partition,
            "value": mark.value,
            "updated": moment(mark.updated_ms),
            "epoch": mark.epoch,
        }
        for mark in marks
    )
    out.rows(rows, ["dataset", "partition", "value", "updated", "epoch"])


@ingest_commands.command("reset")
def reset(
    ctx: typer.Context,
    file: File,
    dataset: Annotated[str, typer.Argument(help="The dataset's name.", show_default=False)],
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="PARTITION=JSON", help="A watermark to set; may be repeated.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    env: Env = None,
    param: Params = None,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Forget a dataset's watermarks, or set them: its source is read again from there. Published rows stay."""
    out: Output = ctx.obj
    pipeline = Pipeline.from_yaml(file, env=env, params=_params(param), catalog=catalog)
    wanted = dict(_watermark(text) for text in to or ())
    if not yes and not out.json:
        typer.confirm(f"Rows of {dataset} that are published will be published again. Go on?", abort=True)
    pipeline.reset(dataset, wanted)
    out.record({"dataset": dataset, "watermarks": wanted})


@ingest_commands.command("schema")
def schema(ctx: typer.Context, json: AsJson = False) -> None:
    """Print the JSON schema of pipelines, for editors."""
    typer.echo(msgspec.json.format(msgspec.json.encode(pipeline_schema()), indent=2).decode())


def _stopped_by_signals() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; the next one is as if nobody had been waiting for it."""
    stop = threading.Event()

    def on_signal(*_: object) -> None:
        stop.set()
        for number, before in usual.items():
            signal.signal(number, before)

    usual = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    return stop


class _Waiting:
    """Tells who is waited for, when that changes and every few seconds."""

    def __init__(self, out: Output) -> None:
        self._out, self._told = out, 0.0

    def __call__(self, held: LeaseHeld) -> None:
        if time.monotonic() - self._told >= _TELL_EVERY_S:
            self._told = time.monotonic()
            self._out.say(f"Waiting: {held.message}", style="dim")


class _Spark:
    """A session that is started when it is first needed."""

    def __init__(self, name: str, master: str) -> None:
        self._name, self._master = name, master
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._session is None:
            self._session = self._start()
        return self._session

    def _start(self) -> SparkSession:
        return spark_session(f"lakeseal ingest {self._name}", instead="say --no-spark", master=self._master)


def _params(given: list[str] | None) -> dict[str, str]:
    found = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InvalidArgument(f"{text!r} is no parameter", hint="Write it as --param name=text")
        found[name] = value
    return found


def _watermark(text: str) -> tuple[str, Any]:
    name, found, value = text.rpartition("=")
    try:
        if found:
            return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        pass
    raise InvalidArgument(
        f"{text!r} is no watermark", hint="""Write it as --to 'orders:0={"generation":0,"offset":5}'"""
    )


def _seconds(text: str) -> float:
    seconds = seconds_of(text)
    if not seconds:
        raise typer.BadParameter(f"use {SUCH_AS}", param_hint="--every")
    return seconds
