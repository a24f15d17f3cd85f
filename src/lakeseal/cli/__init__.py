"""What a person types.

Each command has `--json`: then standard output holds JSON only (one line per row, or one object), and an error is one
line of JSON on standard error. Without it, people get tables and one clear line per error. Exit codes: 0 it is done,
1 it was refused or failed, 2 the call itself is wrong. LAKESEAL_DEBUG=1 shows tracebacks.

One module per group of commands; `app` puts them together.
"""

from lakeseal.cli.app import main

__all__ = ["main"]
