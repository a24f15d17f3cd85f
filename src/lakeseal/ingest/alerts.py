"""`Alert`: tells a webhook how a run ended. One that can't be told is a note of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from lakeseal.display import counted
from lakeseal.errors import InvalidArgument
from lakeseal.ingest.posting import check_address, check_headers, post

if TYPE_CHECKING:
    from lakeseal.ingest.runs import RunResult


class Alert(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    webhook: str
    """Where to POST; its secrets are variables."""
    on: tuple[Literal["failed", "partly", "published", "nothing_new"], ...] = ("failed", "partly")
    """How runs end that are told."""
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.on:
            raise InvalidArgument("An alert that is told on nothing says nothing", hint="on: [failed, partly]")
        check_address(self.webhook)
        check_headers(self.headers)

    def __repr__(self) -> str:
        return f"Alert(on={self.on!r})"

    def tell(self, result: RunResult) -> str | None:
        """A note, if it could not be told."""
        if result.state not in self.on:
            return None
        reason = post(self.webhook, message(result), self.headers)
        return None if reason is None else f"An alert could not be told: {reason}"


def message(result: RunResult) -> dict[str, Any]:
    """`text` is what chats show."""
    failed = [one for one in result.datasets if one.error is not None]
    lines = [f"{result.pipeline}: {result.state.replace('_', ' ')}, {counted(result.rows, 'row')}"]
    lines += [f"{one.name}: {(one.error or {}).get('message', '')}" for one in failed]
    if result.error is not None:
        lines.append(str(result.error.get("message", "")))
    return {
        "text": "\n".join(lines),
        "pipeline": result.pipeline,
        "run": result.run_id,
        "state": result.state,
        "rows": result.rows,
        "failed": {one.name: one.error for one in failed},
        "error": result.error,
    }
