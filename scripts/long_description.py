"""What a package index shows: the README, with links that lead somewhere from there.

Hatch asks for it at every build. LAKESEAL_ADDRESS is where the files of this version are to be seen; without it a link
to a file of the repository is its words, and a picture is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


def absolute(text: str, address: str | None) -> str:
    def moved(found: re.Match[str]) -> str:
        is_picture, words, path = found.groups()
        if address:
            return f"{is_picture}[{words}]({address.rstrip('/')}/{path})"
        return "" if is_picture else words

    return LINK.sub(moved, text)


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        told = absolute(text, os.environ.get("LAKESEAL_ADDRESS"))
        metadata["readme"] = {"content-type": "text/markdown", "text": told}


def get_metadata_hook() -> type[MetadataHookInterface]:
    return LongDescription
