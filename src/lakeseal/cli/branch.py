"""`lakeseal branch …`: repositories of versioned files, their branches, history, jobs and upkeep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from lakeseal.branches.store import Commit, Entry, Job, Ref, Strategy
from lakeseal.cli.input_files import input_files
from lakeseal.cli.options import (
    AsJson,
    DryRun,
    Files,
    Mode,
    Newest,
    PartitionBy,
    StoreOptions,
    parse_store_options,
)
from lakeseal.cli.output import Output
from lakeseal.cli.read import show_rows
from lakeseal.cli.write import column_names
from lakeseal.commands.branch_job import hint
from lakeseal.errors import InvalidArgument
from lakeseal.repository import Repository
from lakeseal.trust import Trust

commands = typer.Typer()
branch_commands = typer.Typer(help="Versioned trees of files: branches, history, merges, jobs.", no_args_is_help=True)
commands.add_typer(branch_commands, name="branch")

Place = Annotated[
    str, typer.Argument(metavar="REPOSITORY", help="Where it is: a path, s3://…, gs://…, az://…", show_default=False)
]
LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="LAKESEAL_LEDGER",
        help="The ledger's URL; on local disk it may be left out.",
        show_default=False,
    ),
]
AnyRef = Annotated[str, typer.Argument(metavar="REF", help="A branch, a tag or a commit; REF~2 is two steps back.")]
BranchName = Annotated[str, typer.Argument(metavar="BRANCH", help="A branch.", show_default=False)]
CommitRef = Annotated[str, typer.Argument(metavar="COMMIT", help="A commit, or a ref to one.", show_default=False)]
Path = Annotated[str, typer.Argument(metavar="PATH", help="A directory on the branch.")]
IfHead = Annotated[
    str | None, typer.Option("--if-head", help="Only if the branch is at this commit.", show_default=False)
]
Message = Annotated[str, typer.Option("--message", help="What the log says of it.", show_default=False)]
Parent = Annotated[int, typer.Option("--parent", min=1, help="Of a merge: relative to which parent.")]


@branch_commands.command("init")
def init(
    ctx: typer.Context, uri: Place, ledger: LedgerUrl = None, option: StoreOptions = None, json: AsJson = False
) -> None:
    """Make a repository with an empty branch main."""
    out: Output = ctx.obj
    repo = Repository.create(uri, ledger=ledger, storage_options=parse_store_options(option))
    out.record({"repository": repo.uri, "main": repo.store.head("main")})


@branch_commands.command("list")
def list_branches(
    ctx: typer.Context, uri: Place, ledger: LedgerUrl = None, option: StoreOptions = None, json: AsJson = False
) -> None:
    """Show branches and tags."""
    out: Output = ctx.obj
    repo = _open(uri, ledger, option)
    out.rows([_ref(ref) for ref in (*repo.branches(), *repo.tags())], ["name", "kind", "commit", "protected"])


@branch_commands.command("create")
def create(
    ctx: typer.Context,
    uri: Place,
    name: BranchName,
    source: Annotated[str, typer.Option("--from", help="A branch, tag or commit to start at.")] = "main",
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make a branch."""
    out: Output = ctx.obj
    out.record(_ref(_open(uri, ledger, option).create_branch(name, source)))


@branch_commands.command("delete")
def delete(
    ctx: typer.Context,
    uri: Place,
    name: BranchName,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Delete a branch; what only it had goes with the next collection."""
    out: Output = ctx.obj
    _open(uri, ledger, option).delete_branch(name)
    out.record({"deleted": name})


@branch_commands.command("tag")
def tag(
    ctx: typer.Context,
    uri: Place,
    name: Annotated[str, typer.Argument(metavar="TAG", help="The tag's name.", show_default=False)],
    ref: AnyRef = "main",
    remove: Annotated[bool, typer.Option("--delete", help="Remove the tag instead.")] = False,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Give a commit a name that never moves."""
    out: Output = ctx.obj
    repo = _open(uri, ledger, option)
    if remove:
        repo.delete_tag(name)
        out.record({"deleted": name})
    else:
        out.record(_ref(repo.tag(name, ref)))


@branch_commands.command("log")
def log(
    ctx: typer.Context,
    uri: Place,
    ref: AnyRef = "main",
    limit: Newest = 20,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show commits, newest first."""
    out: Output = ctx.obj
    commits = _open(uri, ledger, option).log(ref, limit)
    out.rows([_commit(commit, whole=out.json) for commit in commits], ["commit", "time", "message", "job", "files"])


@branch_commands.command("diff")
def diff(
    ctx: typer.Context,
    uri: Place,
    a: AnyRef,
    b: AnyRef,
    path: Path = "",
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show what has to change in A to make it B."""
    out: Output = ctx.obj
    changes = _open(uri, ledger, option).store.diff(a, b, path)
    rows = (
        {
            "kind": change.kind.value,
            "path": change.path,
            "sizeBefore": None if change.before is None else change.before.size,
            "sizeAfter": None if change.after is None else change.after.size,
        }
        for change in changes
    )
    out.rows(rows, ["kind", "path", "sizeBefore", "sizeAfter"])


@branch_commands.command("ls")
def ls(
    ctx: typer.Context,
    uri: Place,
    ref: AnyRef = "main",
    path: Path = "",
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """List files."""
    out: Output = ctx.obj
    entries = _open(uri, ledger, option).store.list(ref, path)
    out.rows((_entry(entry, whole=out.json) for entry in entries), ["path", "size", "rows"])


@branch_commands.command("write")
def write(
    ctx: typer.Context,
    uri: Place,
    branch: BranchName,
    path: Path,
    files: Files,
    mode: Mode = "append",
    format: Annotated[str, typer.Option("--format", help="parquet, csv, json or orc.")] = "parquet",
    partition_by: PartitionBy = None,
    message: Message = "",
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Write the rows of files to a branch, as one job."""
    out: Output = ctx.obj
    repo = _open(uri, ledger, option)
    for other in repo.jobs(branch, path):
        out.say(hint(other), style="yellow")
    done = repo.write(
        input_files(files), branch, path, format, mode, partition_by=column_names(partition_by), message=message
    )
    out.record(_plain(done))


@branch_commands.command("read")
def read(
    ctx: typer.Context,
    uri: Place,
    ref: AnyRef,
    path: Path,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Names, separated by commas.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=0, help="At most so many.", show_default=False)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="Of files that no job wrote: parquet, csv, json or orc.", show_default=False),
    ] = None,
    header: Annotated[bool, typer.Option("--header", help="Of CSV that no job wrote: names come first.")] = False,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show rows of the files below a path. Without --limit, --json gives all of them and people get the first 20."""
    repo = _open(uri, ledger, option)
    show_rows(ctx.obj, repo.to_batches(ref, path, column_names(columns) or None, format=format, header=header), limit)


@branch_commands.command("merge")
def merge(
    ctx: typer.Context,
    uri: Place,
    source: AnyRef,
    dest: BranchName,
    strategy: Annotated[
        Strategy | None,
        typer.Option("--strategy", help="Who wins where both sides changed a file.", show_default=False),
    ] = None,
    if_head: IfHead = None,
    message: Message = "",
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Bring what SOURCE has to a branch, all of it at once."""
    out: Output = ctx.obj
    repo = _open(uri, ledger, option)
    for job in repo.jobs(dest):
        out.say(hint(job), style="yellow")
    out.record(_plain(repo.merge(source, dest, strategy, if_head, message=message)))


@branch_commands.command("revert")
def revert(
    ctx: typer.Context,
    uri: Place,
    branch: BranchName,
    commit: CommitRef,
    parent: Parent = 1,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Undo a commit by a new one."""
    out: Output = ctx.obj
    out.record(_commit(_open(uri, ledger, option).revert(branch, commit, parent), whole=out.json))


@branch_commands.command("cherry-pick")
def cherry_pick(
    ctx: typer.Context,
    uri: Place,
    branch: BranchName,
    commit: CommitRef,
    parent: Parent = 1,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Do again on a branch what a commit did elsewhere."""
    out: Output = ctx.obj
    out.record(_commit(_open(uri, ledger, option).cherry_pick(branch, commit, parent), whole=out.json))


@branch_commands.command("reset")
def reset(
    ctx: typer.Context,
    uri: Place,
    branch: BranchName,
    ref: AnyRef,
    if_head: IfHead = None,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Point a branch elsewhere."""
    out: Output = ctx.obj
    out.record(_ref(_open(uri, ledger, option).reset(branch, ref, if_head)))


@branch_commands.command("protect")
def protect(
    ctx: typer.Context,
    uri: Place,
    branch: BranchName,
    off: Annotated[bool, typer.Option("--off", help="Allow commits again.")] = False,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="JSON",
            help='What merges must pass, such as {"rule": "max-removed", "limit": 100}; may be repeated.',
            show_default=False,
        ),
    ] = None,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Let a branch change by merges only."""
    out: Output = ctx.obj
    rules = [_rule(text) for text in rule or ()]
    out.record(_ref(_open(uri, ledger, option).protect(branch, protected=not off, rules=rules)))


@branch_commands.command("export")
def export(
    ctx: typer.Context,
    uri: Place,
    ref: AnyRef,
    path: Path,
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Where plain files go.", show_default=False)],
    place: Annotated[
        list[str] | None,
        typer.Option("--place", help="Files below this URI may be read where the branch names them; repeatable."),
    ] = None,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Lay files out for tools that know nothing of refs; run again, only what changed."""
    out: Output = ctx.obj
    out.record(_plain(_open(uri, ledger, option, place).export(ref, path, directory)))


@branch_commands.command("jobs")
def jobs(
    ctx: typer.Context,
    uri: Place,
    branch: Annotated[str | None, typer.Option("--branch", help="Only those of a branch.", show_default=False)] = None,
    path: Annotated[
        str | None, typer.Option("--path", help="Only those whose output overlaps it.", show_default=False)
    ] = None,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show who is writing where, since when."""
    out: Output = ctx.obj
    found = _open(uri, ledger, option).jobs(branch, path)
    out.rows([_job(job) for job in found], ["job", "who", "dest", "path", "since", "branch"])


@branch_commands.command("gc")
def gc(
    ctx: typer.Context,
    uri: Place,
    job_grace_hours: Annotated[
        float, typer.Option("--job-grace-hours", min=0, help="Jobs that began longer ago are given up.")
    ] = 168,
    history_days: Annotated[
        float | None,
        typer.Option("--history-days", min=0, help="Forget files of older commits.", show_default="keep all"),
    ] = None,
    dry_run: DryRun = False,
    ledger: LedgerUrl = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Remove what no branch, tag or job in flight needs."""
    out: Output = ctx.obj
    out.record(_plain(_open(uri, ledger, option).gc(job_grace_hours, history_days, dry_run)))


def _open(uri: str, ledger: str | None, option: list[str] | None, places: list[str] | None = None) -> Repository:
    known = Trust()
    trust = msgspec.structs.replace(known, places=(*known.places, *(places or ())))
    return Repository.open(uri, ledger=ledger, storage_options=parse_store_options(option), trust=trust)


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return {_camel(name): part for name, part in plain.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _ref(ref: Ref) -> dict[str, Any]:
    return {"name": ref.name, "kind": ref.kind, "commit": ref.commit, "protected": ref.protection.protected}


def _commit(commit: Commit, *, whole: bool) -> dict[str, Any]:
    short = {
        "commit": commit.id if whole else commit.id[:12],
        "time": _moment(commit.time_ms),
        "message": commit.message,
        "job": commit.job,
        "files": commit.entries,
    }
    return {**short, "parents": commit.parents, "metadata": commit.metadata} if whole else short


def _entry(entry: Entry, *, whole: bool) -> dict[str, Any]:
    short = {"path": entry.path, "size": entry.size, "rows": entry.metadata.get("rows")}
    return {**short, "address": entry.address, "checksum": entry.checksum} if whole else short


def _job(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "who": job.who,
        "dest": job.dest,
        "path": job.path,
        "since": _moment(job.since_ms),
        "branch": job.branch,
    }


def _rule(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"The rule {text!r} is not a JSON object: {error}") from error


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
