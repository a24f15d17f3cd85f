"""The JSON schema of a pipeline's YAML, for editors that complete and check it while one types."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from lakeseal.ingest.source import source_types
from lakeseal.ingest.yaml_file import RawDataset, RawPipeline

_ID = "https://json-schema.org/draft/2020-12/schema"


def pipeline_schema() -> dict[str, Any]:
    """With every kind of source that is known in this process."""
    kinds = dict(sorted(source_types().items()))
    (pipeline, dataset, *sources), parts = msgspec.json.schema_components(
        [RawPipeline, RawDataset, *kinds.values()], ref_template="#/$defs/{name}"
    )
    _described(parts, [RawPipeline, RawDataset, *kinds.values()])
    parts["RawPipeline"]["properties"]["datasets"]["items"] = dataset
    parts["RawDataset"]["properties"]["source"] = {"oneOf": sources}
    for name, number in (("RawPipeline", "pipeline"), ("RawDataset", "dataset")):
        parts[name]["title"] = number
    return {"$schema": _ID, "title": "A Lakeseal pipeline", **pipeline, "$defs": parts}


def _described(parts: dict[str, Any], kinds: list[Any]) -> None:
    for kind in kinds:
        text = inspect.getdoc(inspect.getmodule(kind))
        if text and kind.__name__ in parts:
            parts[kind.__name__]["description"] = text.partition("\n")[0]
