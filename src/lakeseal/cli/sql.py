"""`lakeseal sql`: statements from arguments, a file, a pipe or a prompt.

At the prompt a statement ends with a semicolon, and may have several lines; what was typed is kept in the user's
folder, and Tab completes keywords and names of the catalog. An error there ends the statement; elsewhere it ends the
command, and the statements behind it are not done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakeseal.catalogs import Catalog
from lakeseal.cli.app import in_flags
from lakeseal.cli.options import AsJson, CatalogName, OwnerName, StoreOptions, parse_store_options
from lakeseal.cli.output import Output
from lakeseal.cli.read import rows_of
from lakeseal.cli.spark_session import spark_session
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.statements.script import is_whole, split
from lakeseal.table_sql.sql import sql as done

commands = typer.Typer()

_WORDS = """ADD AFTER ALTER AND AS BETWEEN BY CASE CHECK CLONE CLUSTER COLUMN COLUMNS COMMENT CONSTRAINT CONVERT CREATE
DEEP DEFAULT DELETE DELTA DESCRIBE DETAIL DISTINCT DROP DRY ELSE END EXISTS EXTENDED FEATURE FROM FULL GENERATED GROUP
HAVING HISTORY HOURS IDENTITY IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT LITE LOCATION MATCHED MERGE NAME NOT NULL OF
ON OPTIMIZE OR ORDER OVERWRITE PARTITIONED RENAME REPLACE RESTORE RETAIN RUN SELECT SET SHALLOW SHOW TABLE TABLES THEN
TBLPROPERTIES TIMESTAMP TO TYPE UNION UNSET UPDATE USING VACUUM VALUES VERSION WHEN WHERE WITH ZORDER"""
_KEYWORDS = tuple(_WORDS.split())
_MOST_ROWS = 100
_HELP = "End a statement with ;  — exit with \\q or Ctrl-D"


@commands.command()
def sql(
    ctx: typer.Context,
    statements: Annotated[list[str] | None, typer.Argument(help="Statements.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Statements with ; behind each; - is a pipe.", show_default=False),
    ] = None,
    catalog: CatalogName = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Let Spark plan what is asked; DuckDB does otherwise.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show so many rows; JSON has them all.")
    ] = _MOST_ROWS,
    owner: OwnerName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Run statements of SQL: on tables by path, delta.`path`, and by name."""
    names = Catalog(catalog)
    session = _session() if spark else None
    store = parse_store_options(option)
    shell = Shell(ctx.obj, limit, lambda text: done(text, session, catalog=names, owner=owner, storage_options=store))
    if statements and file is not None:
        raise typer.BadParameter("say what to do by arguments or by a file, not by both")
    if statements:
        shell.run(one for text in statements for one in split(text))
    elif file is not None and str(file) != "-":
        shell.run(split(_read(file)))
    elif file is not None or not sys.stdin.isatty():
        shell.run(split(sys.stdin.read()))
    else:
        _prompt(shell, names)


class Shell:
    """What becomes of statements, one after the other."""

    def __init__(self, out: Output, limit: int, do: Callable[[str], Any]) -> None:
        self._out = out
        self._limit = limit
        self._do = do

    def run(self, statements: Iterable[str]) -> None:
        for text in statements:
            self.show(self._do(text))

    def show(self, answer: Any) -> None:
        table: pa.Table = answer if isinstance(answer, pa.Table) else answer.toArrow()
        if not table.num_columns:
            return
        shown = table if self._out.json else table.slice(0, self._limit)
        self._out.rows(rows_of(shown.to_batches()), table.column_names)
        more = f"{shown.num_rows} of {table.num_rows} rows" if shown.num_rows < table.num_rows else None
        self._out.say(more or f"{table.num_rows} row{'' if table.num_rows == 1 else 's'}", style="dim")

    def converse(self, read: Callable[[str], str]) -> None:
        """Statements from a prompt, until it ends. An error is said, and the next one asked for."""
        typed = ""
        while True:
            try:
                line = read("lakeseal> " if not typed else "       -> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                typed = ""
                continue
            if not typed and line.strip().lower() in ("\\q", "exit", "quit", "exit;", "quit;"):
                return
            typed = f"{typed}{line}\n" if typed or line.strip() else ""
            if is_whole(typed):
                whole, typed = typed, ""
                try:
                    self.run(split(whole))
                except LakesealError as error:
                    self._out.error(in_flags(error))
                except KeyboardInterrupt:
                    self._out.say("Interrupted", style="dim")
                except Exception as error:
                    # Spark's own errors, of what Spark was asked: the next statement may be a better one.
                    self._out.error(LakesealError(f"{type(error).__name__}: {error}"))


def _prompt(shell: Shell, names: Catalog) -> None:
    try:
        import readline  # not on every system
    except ImportError:
        shell.converse(input)
        return
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "lakeseal"
    past = folder / "sql_history"
    with suppress(OSError):
        readline.read_history_file(past)
    readline.set_history_length(2000)
    readline.set_completer_delims(" \t\n()=,;")
    readline.set_completer(Completer(names))
    readline.parse_and_bind("tab: complete")
    typer.echo(_HELP)
    try:
        shell.converse(input)
    finally:
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(past)


class Completer:
    """Words that begin with what was typed: names of the catalog, then keywords in the case that was begun with."""

    def __init__(self, names: Catalog) -> None:
        self._names = names
        self._found: Sequence[str] = ()

    def __call__(self, typed: str, number: int) -> str | None:
        if number == 0:
            self._found = self.words(typed)
        return self._found[number] if number < len(self._found) else None

    def words(self, typed: str) -> list[str]:
        folded = typed.lower()
        keywords = [word.lower() if typed[:1].islower() else word for word in _KEYWORDS]
        return [word for word in (*self._tables(), *keywords) if word.lower().startswith(folded)]

    def _tables(self) -> list[str]:
        with suppress(LakesealError):
            return [f"{one.name.schema}.{one.name.table}" for one in self._names.tables()]
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"The file {file} cannot be read: {error}") from error


def _session() -> Any:
    return spark_session("lakeseal sql", instead="leave --spark out")
