"""Other datasets of the pipeline as a source: what a derived dataset is made of.

It reads nothing by itself. A run works a derived dataset out from the tables of its inputs (`ingest.deriving`), in the
order of the graph (`ingest.graph`); here is what the user says of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeseal.errors import InvalidArgument
from lakeseal.ingest.sources.source import Plan, Source, Watermark, register_source


@register_source
class DatasetsSource(Source, frozen=True, kw_only=True, tag="datasets"):
    inputs: tuple[str, ...]
    """Names of datasets. In SQL they are tables by these names; a function gets a DataFrame for each, in this order."""

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidArgument("A dataset that is made of others names them", hint="inputs: [orders, people]")
        twice = next((name for name in self.inputs if self.inputs.count(name) > 1), None)
        if twice is not None:
            raise InvalidArgument(f"{twice!r} is an input twice")

    @property
    def has_records(self) -> bool:
        return False

    @property
    def is_asked(self) -> bool:
        return False

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full",)

    def describe(self) -> str:
        return f"the datasets {', '.join(self.inputs)}"

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        return Plan(notes=(f"worked out from {', '.join(self.inputs)} when they have changed",))
