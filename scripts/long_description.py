"""What a package index shows: the README, with links that lead somewhere from there, and the project's addresses.

Hatch asks for it at every build. LAKESEAL_ADDRESS is where the files of this version are to be seen; without it a link
to a file of the repository is its words, a picture is left out, and there are no addresses.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


ADDRESSES = {
    "Homepage": "README.md",
    "Documentation": "docs/index.md",
    "Changelog": "CHANGELOG.md",
    "Source": "src",
    "Contributing": "CONTRIBUTING.md",
}
"""What each of them is called, and which file or folder it leads to."""


def absolute(text: str, address: str | None) -> str:
    def moved(found: re.Match[str]) -> str:
        is_picture, words, path = found.groups()
        if address:
            return f"{is_picture}[{words}]({_at(address, path)})"
        return "" if is_picture else words

    return LINK.sub(moved, text)


def addresses(address: str | None) -> dict[str, str]:
    return {name: _at(address, path) for name, path in ADDRESSES.items()} if address else {}


def _at(address: str, path: str) -> str:
    return f"{address.rstrip('/')}/{path}"


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get("LAKESEAL_ADDRESS")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address)}
        metadata["urls"] = addresses(address)


def get_metadata_hook() -> type[MetadataHookInterface]:
    return LongDescription
