"""Options that several commands share, and the table that they name."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lakeseal.cli.output import Output
from lakeseal.commands.write import Mode as SaveMode
from lakeseal.owner.connect import TOKEN_VARIABLE, is_service
from lakeseal.table import Table


def _as_json(ctx: typer.Context, wanted: bool) -> bool:
    out = ctx.obj
    if wanted and isinstance(out, Output):
        out.json = True
    return wanted


Uri = Annotated[
    str,
    typer.Argument(
        help="The table: where it is (a path, s3://…, gs://…, az://…), or its name in the catalog (sales.orders).",
        show_default=False,
    ),
]
OwnerName = Annotated[
    str | None,
    typer.Option(
        "--owner",
        help="Who decides on its commits: a ledger's URL, a service's URL, or a name in LAKESEAL_OWNERS.",
        show_default=False,
    ),
]
_CATALOG = "Where names are looked up: a ledger's URL, a service's URL, or a name in LAKESEAL_OWNERS."
CatalogName = Annotated[
    str | None, typer.Option("--catalog", help=_CATALOG, show_default="LAKESEAL_CATALOG, or that of the user")
]
RequiredOwner = Annotated[
    str,
    typer.Option(
        "--owner",
        envvar="LAKESEAL_OWNER",
        help="The ledger's URL, the service's URL, or a name in LAKESEAL_OWNERS.",
        show_default=False,
    ),
]
CatalogOfOwner = Annotated[str | None, typer.Option("--catalog", help=_CATALOG, show_default="the owner's own")]
AsJson = Annotated[bool, typer.Option("--json", callback=_as_json, is_eager=True, help="JSON lines instead of text.")]
Where = Annotated[
    str | None, typer.Option("--where", "-w", help="Rows for which this SQL condition is true.", show_default=False)
]
Newest = Annotated[int, typer.Option("--limit", "-n", min=1, help="So many of the newest.")]
Mode = Annotated[SaveMode, typer.Option("--mode", "-m", help="What to do where there are rows already.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would go, and delete nothing.")]
Files = Annotated[list[str], typer.Argument(help="Parquet, CSV, JSON-lines, Arrow or ORC files.", show_default=False)]
PartitionBy = Annotated[
    str | None, typer.Option("--partition-by", "-p", help="Columns, separated by commas.", show_default=False)
]
AtVersion = Annotated[int | None, typer.Option("--version", "-v", help="Read this version.", show_default=False)]
AtTimestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp", "-t", help="Read what was current then, such as 2026-03-01T12:00:00Z.", show_default=False
    ),
]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", "--option", "-o", metavar="NAME=VALUE", help="An option of the store.", show_default=False
    ),
]
Ledger = Annotated[
    str,
    typer.Option(
        "--ledger",
        envvar="LAKESEAL_LEDGER",
        help="The ledger's URL: sqlite:///path/ledger.db, postgresql://…, or where it is enough a service's address.",
        show_default=False,
    ),
]


def service_token(url: str) -> str | None:
    """The token to send to this address, if it is a service's. It is no option: everybody on the machine could read it
    from the command line."""
    return os.environ.get(TOKEN_VARIABLE) if is_service(url) else None


def open_table(uri: str, store_options: list[str] | None, owner: str | None, catalog: str | None) -> Table:
    return Table(uri, owner=owner, storage_options=parse_store_options(store_options), catalog=catalog)


def parse_store_options(texts: list[str] | None) -> dict[str, str] | None:
    parsed = {}
    for text in texts or ():
        name, found, value = text.partition("=")
        if not found or not name:
            # The value may be a secret, so it is not repeated.
            raise typer.BadParameter("an option of the store has the form NAME=VALUE", param_hint="--storage-option")
        parsed[name] = value
    return parsed or None
