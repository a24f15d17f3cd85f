"""Write what Lakeseal consists of, as a CycloneDX bill of materials: `make sbom`, or `python scripts/sbom.py FILE`.

It lists Lakeseal, and what it and its extras ask for, in the versions that are installed: the environment of the Python
that runs this. What is there for other reasons is left out.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

NOT_SHIPPED = {"dev", "docs"}
OURS = "lakeseal"


def bill() -> dict[str, Any]:
    found = closure()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {**component(OURS), "type": "application"},
        },
        "components": [component(name) for name in sorted(found) if name != OURS],
        "dependencies": [
            {"ref": purl(name), "dependsOn": sorted(purl(one) for one in needs)}
            for name, needs in sorted(found.items())
        ],
    }


def closure() -> dict[str, set[str]]:
    """Each distribution that is shipped or asked for, and those that it needs."""
    shipped = set(metadata.metadata(OURS).get_all("Provides-Extra") or ()) - NOT_SHIPPED
    waiting: list[tuple[str, frozenset[str]]] = [(OURS, frozenset(shipped))]
    known: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        needs = known.setdefault(name, set())
        for text in metadata.requires(name) or ():
            asked = Requirement(text)
            if asked.marker is not None and not any(asked.marker.evaluate({"extra": one}) for one in {"", *extras}):
                continue
            other = normal(asked.name)
            try:
                metadata.distribution(other)
            except metadata.PackageNotFoundError:
                continue  # of an extra that is not installed here
            needs.add(other)
            waiting.append((other, frozenset(asked.extras)))
    return known


def component(name: str) -> dict[str, Any]:
    told = metadata.metadata(name)
    licence = told.get("License-Expression")
    named = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if line.startswith("License :: ")]
    licences = [{"expression": licence}] if licence else [{"license": {"name": one}} for one in named[:1]]
    return {
        "type": "library",
        "bom-ref": purl(name),
        "name": name,
        "version": metadata.version(name),
        "purl": purl(name),
        **({"licenses": licences} if licences else {}),
    }


def purl(name: str) -> str:
    return f"pkg:pypi/{name}@{metadata.version(name)}"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    made = bill()
    place.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{place}: Lakeseal and {len(made['components'])} packages")
