"""`lakeseal serve`: a commit owner for a team, over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from lakeseal.cli.options import AsJson, Ledger, StoreOptions, parse_store_options
from lakeseal.cli.output import Output
from lakeseal.errors import InvalidArgument, Unsupported
from lakeseal.owner.config import DEFAULT_BATCH_SIZE, DEFAULT_NAME, MOST_UNBACKFILLED

commands = typer.Typer()


@commands.command()
def serve(
    ctx: typer.Context,
    ledger: Ledger,
    listen: Annotated[str, typer.Option("--listen", help="Host and port; port 0 takes a free one.")] = "127.0.0.1:8700",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that share the ledger.")] = 1,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Callers without a token may do everything; on loopback only.")
    ] = False,
    root: Annotated[
        list[str] | None,
        typer.Option("--root", help="Serve tables at or below this place only; may be repeated.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What tables call this owner.")] = DEFAULT_NAME,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="For new tables: commits between backfills.")
    ] = DEFAULT_BATCH_SIZE,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", help="A JSON file with a list of policies.", show_default=False),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option("--credentials", help="A JSON file with what engines reach files with.", show_default=False),
    ] = None,
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="Bytes of one request.")] = 4 * 2**20,
    max_upload: Annotated[
        int,
        typer.Option("--max-upload", min=1, help="Bytes of what a pipeline records, and of all such requests."),
    ] = 4 * 2**20,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Requests a second for each token and worker; 0 is no limit.")
    ] = 500.0,
    max_unbackfilled: Annotated[
        int, typer.Option("--max-unbackfilled", min=1, help="Commits of a table that may wait for their backfill.")
    ] = MOST_UNBACKFILLED,
    max_connections: Annotated[
        int, typer.Option("--max-connections", min=1, help="Connections that a worker has open at a time.")
    ] = 10_000,
    max_connections_per_address: Annotated[
        int, typer.Option("--max-connections-per-address", min=1, help="The same, of one address.")
    ] = 512,
    trusted_proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxies",
            help="Believe X-Forwarded-For and -Proto from this address or network; may be repeated.",
            show_default=False,
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="A PEM file.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="A PEM file.", show_default=False)] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Run the commit owner of a ledger as an HTTP service. Logs go to standard error, as JSON."""
    out: Output = ctx.obj
    try:
        from lakeseal.service.server import serve as run  # the server's packages are an extra
        from lakeseal.service.settings import ServiceSettings, parse_listen
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The service needs the package {error.name}", hint="pip install 'lakeseal[server]'"
        ) from None
    if log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter("use debug, info, warning or error", param_hint="--log-level")
    host, port = parse_listen(listen)
    settings = ServiceSettings(
        ledger=ledger,
        host=host,
        port=port,
        workers=workers,
        insecure=insecure,
        roots=tuple(root or ()),
        name=name,
        batch_size=batch_size,
        policies=_read_list(policies, "policies"),
        credentials=_read_list(credentials, "credentials"),
        storage_options=parse_store_options(option) or {},
        max_body=max_body,
        max_upload=max_upload,
        rate=rate,
        most_unbackfilled=max_unbackfilled,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        trusted_proxies=tuple(part for text in trusted_proxies or () for part in text.split(",")),
        tls_certificate=None if tls_certificate is None else str(tls_certificate),
        tls_key=None if tls_key is None else str(tls_key),
        log_level=log_level,
    )

    def listening(url: str) -> None:
        if out.json:
            out.record({"url": url})
        else:
            out.say(f"Lakeseal's owner {name!r} listens on {url}; Ctrl-C stops it")
        sys.stdout.flush()

    run(settings, listening=listening)


def _read_list(path: Path | None, what: str) -> tuple[dict[str, Any], ...]:
    if path is None:
        return ()
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[dict[str, Any], ...])
    except OSError as error:
        raise InvalidArgument(f"The {what} in {path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"{path} is not a JSON list of {what}: {error}") from None
