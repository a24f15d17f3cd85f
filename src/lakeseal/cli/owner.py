"""`lakeseal owner …`: tables that have a commit owner, and the tokens of its service."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import Annotated, Any

import typer

from lakeseal import ledger as ledgers
from lakeseal.catalog.place import Place, locate
from lakeseal.cli.options import (
    AsJson,
    CatalogOfOwner,
    Ledger,
    RequiredOwner,
    StoreOptions,
    Uri,
    parse_store_options,
    service_token,
)
from lakeseal.cli.output import Output
from lakeseal.clock import now_ms
from lakeseal.durations import SUCH_AS, seconds_of
from lakeseal.errors import InvalidUri, TableNotFound
from lakeseal.owner import handover, rebuild, rows
from lakeseal.owner.connect import connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.kinds import Kind
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import TableCommits
from lakeseal.owner.ownership import State
from lakeseal.service import status as table_status
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.tokens import AccessToken
from lakeseal.service.wire import TableStatus
from lakeseal.storage import Store, is_below, open_store, prefix_of

commands = typer.Typer()
owner_commands = typer.Typer(help="Tables that have a commit owner, and the tokens of its service.")
token_commands = typer.Typer(help="Tokens for the service: made, listed and revoked in its ledger.")
commands.add_typer(owner_commands, name="owner")
owner_commands.add_typer(token_commands, name="token")

_LONGEST_S = 999_999 * 86400.0


@owner_commands.command("tables")
def tables(
    ctx: typer.Context,
    owner: RequiredOwner,
    prefix: Annotated[str, typer.Option("--prefix", help="Only tables at or below this place.")] = "",
    json: AsJson = False,
) -> None:
    """Show the owner's tables and how far they are."""
    out: Output = ctx.obj
    out.rows(
        (_shown(one) for one in _all_tables(_connected(owner), prefix)),
        ["table", "state", "latest", "backfilled", "unbackfilled", "lagMs"],
        none="the owner has no tables; lakeseal owner take-over gives it one",
    )


@owner_commands.command("status")
def status(
    ctx: typer.Context,
    uri: Uri,
    owner: RequiredOwner,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show what the owner knows of one table."""
    out: Output = ctx.obj
    endpoint, store = _connected(owner), _store(_place(uri, owner, catalog), option)
    told = endpoint.get_commits(endpoint.attach(store))
    if told.state is State.NONE and told.latest < 0:
        raise TableNotFound(
            f"The owner {endpoint.name!r} does not know this table",
            table=told.table,
            hint="lakeseal owner take-over hands it over",
        )
    out.record(_told(endpoint, told))


@owner_commands.command("take-over")
def take_over(
    ctx: typer.Context,
    uri: Uri,
    owner: RequiredOwner,
    kind: Annotated[
        Kind, typer.Option("--kind", help="catalog: other engines commit to it too, through the owner's service.")
    ] = Kind.MANAGED,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Hand a table's commits to the owner, from the file system or from another kind of table that it has."""
    out: Output = ctx.obj
    endpoint, place = _connected(owner), _place(uri, owner, catalog)
    store = _store(place, option)
    version = handover.take_over_as(endpoint, store, kind, table_id=place.table_id)
    place.note_kind("managed" if kind is Kind.MANAGED else "catalog")
    out.record({"table": store.uri, "owner": endpoint.name, "kind": str(kind), "version": version})


@owner_commands.command("release")
def release(
    ctx: typer.Context,
    uri: Uri,
    owner: RequiredOwner,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Hand a table's commits back to the file system; everything is backfilled first."""
    out: Output = ctx.obj
    endpoint, place = _connected(owner), _place(uri, owner, catalog)
    store = _store(place, option)
    version = handover.release(endpoint, store)
    place.note_kind("filesystem")
    out.record({"table": store.uri, "owner": None, "version": version})


@owner_commands.command("backfill")
def backfill(
    ctx: typer.Context,
    uri: Uri,
    owner: RequiredOwner,
    version: Annotated[
        int | None, typer.Option("--version", "-v", min=0, help="Up to this version.", show_default="all")
    ] = None,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Put ratified versions into the log under their own names, for readers that know no owner."""
    out: Output = ctx.obj
    endpoint, store = _connected(owner), _store(_place(uri, owner, catalog), option)
    out.record(_told(endpoint, endpoint.backfill(endpoint.attach(store), version)))


@owner_commands.command("drop")
def drop(
    ctx: typer.Context,
    uri: Uri,
    owner: RequiredOwner,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Let the owner forget a table that was deleted for good. The table's place has to be there, without a log."""
    out: Output = ctx.obj
    endpoint, store = _connected(owner), _store(_place(uri, owner, catalog), option)
    out.record(_told(endpoint, endpoint.drop(endpoint.attach(store))))


@owner_commands.command("rebuild")
def rebuild_tables(
    ctx: typer.Context,
    owner: RequiredOwner,
    uris: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URI]...", help="The tables. Without any: all that the ledger knows.", show_default=False
        ),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; otherwise it is only looked and told.")] = False,
    commit: Annotated[
        list[str] | None,
        typer.Option(
            "--commit",
            metavar="FILE",
            help="A file in _commits that was ratified.",
            show_default=False,
        ),
    ] = None,
    catalog: CatalogOfOwner = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Bring a ledger that was lost, or restored from an old backup, up to its tables' logs."""
    out: Output = ctx.obj
    endpoint = _connected(owner)
    if not isinstance(endpoint, LedgerOwner):
        raise InvalidUri("A ledger is rebuilt by whoever has it", hint="Give the ledger's URL, not that of its service")
    names = uris or endpoint.ledger.read(rows.table_names)
    stores = [_store(_place(one, owner, catalog), option) for one in names]
    findings = rebuild.examine(endpoint, stores, chosen=commit or ())
    if apply:
        rebuild.carry_out(endpoint, findings, now=now_ms())
    out.rows(
        ({**_found(one), "applied": apply and one.row is not None} for one in findings),
        ["table", "does", "reason", "inLedger", "inLog", "latest", "fromCommits", "unknown"],
    )
    if not apply:
        out.say("Nothing was changed. Stop all who use the ledger, and run it again with --apply.", style="dim")


def _found(one: rebuild.Finding) -> dict[str, Any]:
    return {
        "table": one.table,
        "does": one.does,
        "reason": one.reason,
        "inLedger": one.in_ledger,
        "inLog": one.in_log,
        "latest": one.latest,
        "fromCommits": [commit.file for commit in one.staged],
        "unknown": list(one.unknown),
    }


@token_commands.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Who uses it; policies and logs know the caller by it.")],
    ledger: Ledger,
    grant: Annotated[
        list[str],
        typer.Option(
            "--grant",
            metavar="ROLE[:PREFIX]",
            help="reader, writer or admin, for the tables at or below a place; may be repeated.",
            show_default=False,
        ),
    ],
    expires: Annotated[str, typer.Option("--expires", help="After so long, such as 12h or 90d, or never.")] = "90d",
    json: AsJson = False,
) -> None:
    """Make a token. It is shown once: the ledger keeps only a hash of it."""
    out: Output = ctx.obj
    grants = tuple(Grant.from_text(text) for text in grant)
    now = now_ms()
    lifetime = _duration_ms(expires)
    with ledgers.open(_on_ledger(ledger)) as opened:
        text, token = tokens.create(opened, name, grants, now=now, expires=None if lifetime is None else now + lifetime)
    out.record({"token": text, **_listed(token)})
    out.say("The token is shown this once; keep it where secrets are kept.", style="dim")


@token_commands.command("list")
def list_tokens(ctx: typer.Context, ledger: Ledger, json: AsJson = False) -> None:
    """Show the tokens that there are, without their secrets."""
    out: Output = ctx.obj
    with ledgers.open(_on_ledger(ledger), create=False) as opened:
        found = tokens.listed(opened)
    out.rows(
        [_listed(token) for token in found], ["id", "name", "grants", "state", "created", "expires"], none="no tokens"
    )


@token_commands.command("revoke")
def revoke(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, not its text.")],
    ledger: Ledger,
    json: AsJson = False,
) -> None:
    """Make a token worthless. Services notice within a second or two."""
    out: Output = ctx.obj
    # Somebody may give the token itself, which holds its id.
    whole = tokens.TEXT.fullmatch(token_id)
    with ledgers.open(_on_ledger(ledger), create=False) as opened:
        revoked = tokens.revoke(opened, token_id if whole is None else whole[1], now=now_ms())
    out.record(_listed(revoked))


def _connected(owner: str) -> OwnerEndpoint:
    with suppress(ModuleNotFoundError):
        # Its packages are an extra; without them `connect` says so.
        import_module("lakeseal.service.client")
    token = service_token(owner)
    return connect(owner, token=token) if token else connect(owner)


def _place(uri: str, owner: str, catalog: str | None) -> Place:
    """An owner's ledger has names too: they are the ones that are meant where no catalog is named."""
    return locate(uri, catalog, usual=owner)


def _store(place: Place, option: list[str] | None) -> Store:
    return open_store(place.uri, parse_store_options(option))


def _all_tables(endpoint: OwnerEndpoint, prefix: str) -> list[TableStatus]:
    below = prefix_of(prefix)
    if isinstance(endpoint, LedgerOwner):
        found = table_status.of_tables(endpoint.ledger, now=now_ms())
        return [one for one in found if is_below(one.table, below)]
    from lakeseal.service.client import HttpOwner  # its packages are an extra, and are there: this is one

    assert isinstance(endpoint, HttpOwner), "an owner is a ledger or a service"
    return endpoint.tables(below)


def _shown(one: TableStatus) -> dict[str, Any]:
    return {
        "table": one.table,
        "state": one.state,
        "latest": one.latest,
        "backfilled": one.backfilled,
        "unbackfilled": one.unbackfilled,
        "lagMs": one.lag_ms,
    }


def _told(endpoint: OwnerEndpoint, told: TableCommits) -> dict[str, Any]:
    return {
        "table": told.table,
        "owner": endpoint.name,
        "state": told.state.value,
        "epoch": told.epoch,
        "latest": told.latest,
        "backfilled": told.backfilled,
        "waiting": [commit.key for commit in told.commits],
        "batchSize": told.batch_size,
    }


def _on_ledger(url: str) -> str:
    if url.lower().startswith(("http://", "https://")):
        raise InvalidUri(
            "Tokens are made in the ledger, not over HTTP", hint="Give the ledger's URL, as lakeseal serve has it"
        )
    return url


def _duration_ms(text: str) -> int | None:
    """None for `never`."""
    if text == "never":
        return None
    seconds = seconds_of(text)
    if seconds is None or not 0.001 <= seconds <= _LONGEST_S:
        raise typer.BadParameter(f"use {SUCH_AS}, or never", param_hint="--expires")
    return int(seconds * 1000)


def _listed(token: AccessToken) -> dict[str, Any]:
    usable = "valid" if token.is_valid(now_ms()) else "expired"
    return {
        "id": token.token_id,
        "name": token.name,
        "grants": [str(grant) for grant in token.grants],
        "state": usable if token.revoked is None else "revoked",
        "created": _moment(token.created),
        "expires": None if token.expires is None else _moment(token.expires),
    }


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
