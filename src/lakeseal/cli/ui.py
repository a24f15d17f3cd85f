"""`lakeseal ui`: the console on this machine, without a service."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from lakeseal.cli.options import AsJson, CatalogName, OwnerName, StoreOptions, parse_store_options
from lakeseal.cli.output import Output
from lakeseal.errors import Unsupported
from lakeseal.table import Table

commands = typer.Typer()


@commands.command()
def ui(
    ctx: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]…", help="Tables to show beside those of the catalog.", show_default=False),
    ] = None,
    repository: Annotated[
        list[str] | None,
        typer.Option("--repository", help="A repository to show; may be repeated.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser", help="Open a browser.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Look at tables, branches and pipelines in a browser: on this machine, by the address that is shown."""
    out: Output = ctx.obj
    try:
        from lakeseal.service.local_console import run  # the server's packages are an extra
    except ModuleNotFoundError as error:
        raise Unsupported(f"The pages need the package {error.name}", hint="pip install 'lakeseal[server]'") from None
    store = parse_store_options(option)
    for one in tables or ():
        Table(one, owner=owner, storage_options=store).version()  # what is misspelt is said here, not on a page
    token = secrets.token_urlsafe(32)

    def listening(url: str) -> None:
        address = f"{url}/sign-in?token={token}"
        if out.json:
            out.record({"url": address})
        else:
            out.say(f"Open {address}\nCtrl-C stops it")
        sys.stdout.flush()
        if browser:
            typer.launch(address)

    run(
        token,
        catalog=catalog,
        owner=owner,
        tables=tables or (),
        repositories=repository or (),
        storage_options=store,
        port=port,
        listening=listening,
    )
