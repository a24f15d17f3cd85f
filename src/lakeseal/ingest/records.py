"""Records that are no rows, as a run tells of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakeseal.formats.records import Parsed
from lakeseal.ingest.source import BadRecord

_SHOWN = 2000


def bad_records(parsed: Parsed, texts: Sequence[bytes], position: Callable[[int], str]) -> tuple[BadRecord, ...]:
    """`texts` are the records that were parsed, `position` says where each was."""
    return tuple(
        BadRecord(reason=misfit.reason, record=shown(texts[misfit.at]), position=position(misfit.at))
        for misfit in parsed.misfits
    )


def shown(record: bytes | str) -> str:
    text = record.decode(errors="replace") if isinstance(record, bytes) else record
    text = text.replace("\0", "�")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text):,} characters)"
