"""`lakeseal steps …`: commit sequences that are recorded and not finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lakeseal.cli.options import AsJson, Ledger, StoreOptions, parse_store_options, service_token
from lakeseal.cli.output import Output
from lakeseal.errors import InvalidArgument, LakesealError, NotFound
from lakeseal.owner.config import OwnerConfig
from lakeseal.steps import leases, recovery
from lakeseal.steps.abort import abort as abort_sequence
from lakeseal.steps.context import StepContext, StepSettings
from lakeseal.steps.holder import take_turn, this_process
from lakeseal.steps.leases import Lease
from lakeseal.steps.places import StepPlaces
from lakeseal.steps.recovery import RecoveryPolicy, step_store
from lakeseal.steps.step import kind_of
from lakeseal.steps.store import CommitStepStore, SequenceState, SequenceStatus

commands = typer.Typer()
step_commands = typer.Typer(help="Commit sequences that are recorded and not finished: look, retry, abort.")
commands.add_typer(step_commands, name="steps")

# Long enough for a large sequence; a person is waiting, so it is not renewed.
_LEASE_SECONDS = 600

Recorded = Annotated[
    str | None,
    typer.Option("--steps", help="Where sequences are recorded as files.", show_default="in the ledger", metavar="URI"),
]
PipelineFile = Annotated[
    Path | None,
    typer.Option(
        "--pipeline", help="The pipeline's file: its steps may reach its targets, and nothing else.", show_default=False
    ),
]
PlaceUris = Annotated[
    list[str] | None,
    typer.Option("--place", help="Without the file: a place that its steps may reach.", metavar="URI"),
]
StagingUris = Annotated[
    list[str] | None,
    typer.Option("--staging", help="And one that task output may be taken and removed from.", metavar="URI"),
]
StoreName = Annotated[str, typer.Argument(metavar="STORE", help="The pipeline's name.")]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's URN.")]


@step_commands.command("list")
def list_sequences(
    ctx: typer.Context,
    ledger: Ledger,
    store: Annotated[
        str | None, typer.Argument(metavar="[STORE]", help="The pipeline's name.", show_default="all")
    ] = None,
    steps: Recorded = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the sequences that there are, and why those that were set aside were."""
    out: Output = ctx.obj
    with _opened(ledger, steps, option) as (found, _):
        names = found.stores() if store is None else [store]
        rows = [_shown(status) for name in names for status in found.statuses(name)]
    out.rows(rows, ["store", "dataset", "state", "steps", "tries", "recorded", "reason"], none="no steps wait")


@step_commands.command("show")
def show(
    ctx: typer.Context,
    store: StoreName,
    dataset: Dataset,
    ledger: Ledger,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also find out which steps have been done; reads what they published.")
    ] = False,
    pipeline: PipelineFile = None,
    place: PlaceUris = None,
    staging: StagingUris = None,
    steps: Recorded = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show one sequence, step by step."""
    out: Output = ctx.obj
    with _opened(ledger, steps, option, _places(pipeline, place, staging)) as (found, context):
        status = _status(found, store, dataset)
        told: dict[str, Any] = {**_shown(status), "epoch": status.epoch, "checksum": status.checksum}
        try:
            sequence = found.get_commit_sequence(store, dataset)
        except LakesealError as error:
            out.record({**told, "broken": str(error)})
            return
        if sequence is None:
            raise _nothing(store, dataset)
        if verify:
            context.check_places(sequence)
        listed = []
        for number, step in enumerate(sequence.steps, start=1):
            row = {"step": number, "kind": kind_of(type(step)), "does": step.describe()}
            listed.append({**row, "done": step.verify(context)} if verify else row)
        removes = [f"{leftover.uri}/{leftover.prefix}" for leftover in sequence.leftovers]
    if out.json:
        out.record({**told, "steps": listed, "thenRemoves": removes})
        return
    out.record({**told, "thenRemoves": removes})
    out.rows(listed, ["step", "kind", "does", *(["done"] if verify else [])])


@step_commands.command("retry")
def retry(
    ctx: typer.Context,
    store: StoreName,
    ledger: Ledger,
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="The dataset's URN.", show_default="all set aside")
    ] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Only open it again: the pipeline's next run does it.")
    ] = False,
    tries: Annotated[int, typer.Option("--tries", min=1, help="How often, before it is set aside again.")] = 1,
    pipeline: PipelineFile = None,
    place: PlaceUris = None,
    staging: StagingUris = None,
    steps: Recorded = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Finish a sequence now: verify each step, do what is missing."""
    out: Output = ctx.obj
    places = _places(pipeline, place, staging)
    with _opened(ledger, steps, option, places) as (found, context), _turn(store, context) as lease:
        if dataset is None:
            names = [one.dataset for one in found.statuses(store) if one.state is SequenceState.SET_ASIDE]
        else:
            names = [_status(found, store, dataset).dataset]
        found.claim(store, names, lease.epoch)
        for name in names:
            recovery.retry(found, store, name, epoch=lease.epoch)
        if later:
            out.rows([{"dataset": name, "state": "open"} for name in names], ["dataset", "state"])
            return
        result = recovery.recover(found, store, context, datasets=names, policy=RecoveryPolicy(tries=tries))
    rows = [
        {
            "dataset": one.dataset,
            "outcome": one.outcome.value,
            "verified": one.verified,
            "executed": one.executed,
            "reason": one.reason,
        }
        for one in result.datasets
    ]
    out.rows(rows, ["dataset", "outcome", "verified", "executed", "reason"])
    if result.not_clear:
        raise typer.Exit(1)


@step_commands.command("abort")
def abort(
    ctx: typer.Context,
    store: StoreName,
    dataset: Dataset,
    ledger: Ledger,
    broken: Annotated[
        bool,
        typer.Option(
            "--broken", help="Drop a record that can't be read; what it had published by then stays as it is."
        ),
    ] = False,
    pipeline: PipelineFile = None,
    place: PlaceUris = None,
    staging: StagingUris = None,
    steps: Recorded = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Take back what a sequence has done, remove its task output and its record. Its rows are extracted again."""
    out: Output = ctx.obj
    places = _places(pipeline, place, staging)
    with _opened(ledger, steps, option, places) as (found, context), _turn(store, context) as lease:
        found.claim(store, [_status(found, store, dataset).dataset], lease.epoch)
        done = abort_sequence(found, store, dataset, context, epoch=lease.epoch, drop_broken=broken)
    out.record({"store": store, "dataset": dataset, "aborted": True, "undone": done.undone})


@contextmanager
def _opened(
    ledger: str, steps: str | None, option: list[str] | None, places: StepPlaces | None = None
) -> Iterator[tuple[CommitStepStore, StepContext]]:
    owner = OwnerConfig(url=ledger, token=service_token(ledger))
    settings = StepSettings(
        ledger=ledger,
        token=owner.token,
        steps=steps,
        storage_options=parse_store_options(option) or {},
        owners=(owner,),
        places=places,
    )
    with settings.open() as context:
        yield step_store(settings, context), context


def _places(pipeline: Path | None, place: list[str] | None, staging: list[str] | None) -> StepPlaces:
    """A record is followed only as far as a person has said: nowhere, without a file and without a place."""
    if pipeline is None:
        return StepPlaces.anything_below(place or (), staging or ())
    if place or staging:
        raise InvalidArgument("Give the pipeline's file, or places, not both")
    from lakeseal.ingest.targets import places_of  # pipelines are a world of their own, and slow to load
    from lakeseal.ingest.yaml_file import read_pipeline

    return places_of(read_pipeline(pipeline))


@contextmanager
def _turn(store: str, context: StepContext) -> Iterator[Lease]:
    """The pipeline's own turn, so that no run of it is under way meanwhile."""
    lease = take_turn(
        context.books.leases,
        leases.of_pipeline(store),
        holder=this_process("lakeseal steps"),
        seconds=_LEASE_SECONDS,
    )
    context.turn = lease.turn
    try:
        yield lease
    finally:
        context.books.leases.release(lease)


def _status(found: CommitStepStore, store: str, dataset: str) -> SequenceStatus:
    status = found.status(store, dataset)
    if status is None:
        raise _nothing(store, dataset)
    return status


def _nothing(store: str, dataset: str) -> NotFound:
    return NotFound(f"{dataset!r} has no sequence in {store!r}", hint="lakeseal steps list shows those that there are")


def _shown(status: SequenceStatus) -> dict[str, Any]:
    return {
        "store": status.store,
        "dataset": status.dataset,
        "state": status.state.value,
        "steps": status.count,
        "tries": status.tries,
        "recorded": datetime.fromtimestamp(status.created_ms / 1000, UTC).isoformat(timespec="seconds"),
        "reason": status.reason,
    }
