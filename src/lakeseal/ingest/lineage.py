"""`Lineage`: a run's datasets as OpenLineage's events, to a file of JSON lines or an address.

Each dataset is a job: it starts when the run does, and is complete or failed when the run ends. Names are those that
OpenLineage gives: a place is `namespace` (`file`, `s3://bucket`, `kafka://brokers`) and `name`. What can't be told is a
note of the run.
"""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.posting import check_address, check_headers, post
from lakeseal.ingest.sources.datasets import DatasetsSource

if TYPE_CHECKING:
    from lakeseal.ingest.config import Dataset
    from lakeseal.ingest.runs import DatasetResult, RunResult

_PRODUCER = "https://github.com/lakeseal"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"


class Lineage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str | None = None
    """Events are added to it, a line each."""
    url: str | None = None
    """Such as https://host/api/v1/lineage."""
    headers: dict[str, str] = field(default_factory=dict)
    namespace: str = "lakeseal"
    """Of the jobs."""

    def __post_init__(self) -> None:
        if (self.file is None) == (self.url is None):
            raise InvalidArgument("Lineage goes to a file or to a url, one of them")
        if self.url is not None:
            check_address(self.url)
        else:
            refuse_idle(self, ["headers"], "of a file, to which nothing is sent")
        check_headers(self.headers)

    def __repr__(self) -> str:
        return f"Lineage(namespace={self.namespace!r})"

    def started(
        self, pipeline: str, run_id: str, datasets: Sequence[Dataset], beside: Sequence[Dataset], at_ms: int
    ) -> tuple[str, ...]:
        """`beside` are datasets that these may be made of, too. Notes on what could not be told."""
        known = _places(datasets, beside)
        return self._tell([self._event("START", pipeline, run_id, one, known, None, at_ms) for one in datasets])

    def ended(self, result: RunResult, datasets: Sequence[Dataset], beside: Sequence[Dataset]) -> tuple[str, ...]:
        """As `started`."""
        known = _places(datasets, beside)
        found = {one.name: one for one in result.datasets}
        at_ms = result.ended_ms or result.started_ms
        events = []
        for dataset in datasets:
            one = found.get(dataset.name)
            is_good = one is not None and one.error is None and result.error is None
            kind = "COMPLETE" if is_good else "FAIL"
            events.append(self._event(kind, result.pipeline, result.run_id, dataset, known, one, at_ms))
        return self._tell(events)

    def _tell(self, events: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        if self.url is not None:
            told = (post(self.url, event, self.headers) for event in events)
            return tuple(f"Lineage could not be told: {reason}" for reason in dict.fromkeys(told) if reason is not None)
        assert self.file is not None
        lines = b"".join(msgspec.json.encode(event, enc_hook=str) + b"\n" for event in events)
        try:
            Path(self.file).parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, lines)
            finally:
                os.close(handle)
        except OSError as error:
            return (f"Lineage could not be written to {self.file}: {error}",)
        return ()

    def _event(
        self,
        kind: str,
        pipeline: str,
        run_id: str,
        dataset: Dataset,
        known: Mapping[str, str],
        result: DatasetResult | None,
        at_ms: int,
    ) -> dict[str, Any]:
        source = dataset.source
        places = [known[name] for name in source.inputs] if isinstance(source, DatasetsSource) else [source.place()]
        facets: dict[str, Any] = {
            "parent": {
                **_facet("1-0-1/ParentRunFacet"),
                "run": {"runId": run_id},
                "job": {"namespace": self.namespace, "name": pipeline},
            }
        }
        if result is not None and result.error is not None:
            message = str(result.error.get("message", ""))
            facets["errorMessage"] = {
                **_facet("1-0-1/ErrorMessageRunFacet"),
                "message": message,
                "programmingLanguage": "Python",
            }
        output: dict[str, Any] = _place(dataset.place)
        if result is not None and result.state == "published":
            statistics = {**_facet("1-0-2/OutputStatisticsOutputDatasetFacet"), "rowCount": result.rows}
            output["outputFacets"] = {"outputStatistics": statistics}
        moment = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
        return {
            "eventType": kind,
            "eventTime": moment.isoformat(timespec="milliseconds"),
            "producer": _PRODUCER,
            "schemaURL": _EVENT,
            "run": {"runId": str(uuid.uuid5(uuid.UUID(run_id), dataset.name)), "facets": facets},
            "job": {"namespace": self.namespace, "name": f"{pipeline}.{dataset.name}"},
            "inputs": [_place(place) for place in places],
            "outputs": [output],
        }


def _places(*datasets: Sequence[Dataset]) -> dict[str, str]:
    return {one.name: one.place for some in datasets for one in some}


def _facet(path: str) -> dict[str, str]:
    name = path.partition("/")[2]
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}/{path}.json#/$defs/{name}"}


def _place(uri: str) -> dict[str, Any]:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return {"namespace": "file", "name": parts.path or uri}
    host = parts.netloc.rpartition("@")[2]  # without a password
    return {"namespace": f"{parts.scheme}://{host}", "name": parts.path.strip("/") or "/"}
