"""Names in `_delta_log`: built and parsed.

Builders give keys from the table's root, ready for a store. `parse` takes a name below `_delta_log` or a key from the
root and says what the file is, or None for everything that is not part of the log's own naming (temporary files,
sidecars, pointers): such files are ignored, never an error. It is strict: twenty digits, a version of 63 bits, a
UUID in its usual form, so that a look-alike is never taken for a commit.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from lakeseal.errors import InvalidArgument

LOG_DIR = "_delta_log/"
LAST_CHECKPOINT = LOG_DIR + "_last_checkpoint"
COMMITS_DIR = LOG_DIR + "_commits/"
STAGED_COMMITS_DIR = LOG_DIR + "_staged_commits/"
SIDECARS_DIR = LOG_DIR + "_sidecars/"
CHANGE_DATA_DIR = "_change_data/"
MAX_VERSION = 2**63 - 1

_MAX_DIGITS = f"{MAX_VERSION:020d}"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_CHECKPOINT = re.compile(
    rf"\.checkpoint\.(?:([0-9]{{10}})\.([0-9]{{10}})\.parquet|({_UUID})\.(?:json|parquet))", re.ASCII
)
_COMPACTED = re.compile(r"\.([0-9]{20})\.compacted\.json", re.ASCII)
_STAGED = re.compile(rf"\.({_UUID})\.json", re.ASCII)
# Ours, and what the successor of managed commits calls it.
_STAGING = ("_commits/", "_staged_commits/")


class LogFileKind(Enum):
    COMMIT = "commit"
    STAGED_COMMIT = "staged commit"
    CHECKPOINT = "checkpoint"
    MULTIPART_CHECKPOINT = "multi-part checkpoint"
    V2_CHECKPOINT = "V2 checkpoint"
    COMPACTED = "compacted commits"
    CHECKSUM = "checksum"


class LogFile(Struct, frozen=True, gc=False):
    """What the name of a file in the log says.

    `name` is relative to `_delta_log`. `end_version` is the last version of compacted commits; `part` counts from 1.
    """

    kind: LogFileKind
    version: int
    name: str
    end_version: int | None = None
    part: int | None = None
    parts: int | None = None
    uuid: str | None = None

    @property
    def key(self) -> str:
        return LOG_DIR + self.name

    @property
    def is_checkpoint(self) -> bool:
        return self.kind in _CHECKPOINTS


_CHECKPOINTS = (LogFileKind.CHECKPOINT, LogFileKind.MULTIPART_CHECKPOINT, LogFileKind.V2_CHECKPOINT)
# Looking a member up on its class costs as much as the rest of `parse`, and a log may have 10⁵ names.
_COMMIT_KIND = LogFileKind.COMMIT
_CHECKSUM_KIND = LogFileKind.CHECKSUM
_CHECKPOINT_KIND = LogFileKind.CHECKPOINT


def parse(name: str) -> LogFile | None:
    if name.startswith(LOG_DIR):
        name = name[11:]
    digits = name[:20]
    if not (digits.isdecimal() and digits.isascii() and len(digits) == 20 and digits <= _MAX_DIGITS):
        return _parse_staged(name) if name.startswith(_STAGING) else None
    rest = name[20:]
    if rest == ".json":
        return LogFile(_COMMIT_KIND, int(digits), name)
    if rest == ".crc":
        return LogFile(_CHECKSUM_KIND, int(digits), name)
    if rest == ".checkpoint.parquet":
        return LogFile(_CHECKPOINT_KIND, int(digits), name)
    if found := _CHECKPOINT.fullmatch(rest):
        if found[3]:
            return LogFile(LogFileKind.V2_CHECKPOINT, int(digits), name, uuid=found[3])
        part, parts = int(found[1]), int(found[2])
        if not 1 <= part <= parts:
            return None
        return LogFile(LogFileKind.MULTIPART_CHECKPOINT, int(digits), name, part=part, parts=parts)
    if (found := _COMPACTED.fullmatch(rest)) and digits < found[1] <= _MAX_DIGITS:
        return LogFile(LogFileKind.COMPACTED, int(digits), name, end_version=int(found[1]))
    return None


def _parse_staged(name: str) -> LogFile | None:
    file = name.partition("/")[2]
    digits = file[:20]
    if not (digits.isdecimal() and digits.isascii() and len(digits) == 20 and digits <= _MAX_DIGITS):
        return None
    found = _STAGED.fullmatch(file[20:])
    return LogFile(LogFileKind.STAGED_COMMIT, int(digits), name, uuid=found[1]) if found else None


def version_prefix(version: int) -> str:
    """The key that every file of `version` starts with; listing after it skips all earlier versions."""
    if not 0 <= version <= MAX_VERSION:
        raise InvalidArgument(f"{version} is not a version", hint="Versions count from 0")
    return f"{LOG_DIR}{version:020d}"


def commit_path(version: int) -> str:
    return f"{version_prefix(version)}.json"


def staged_commit_path(version: int, uuid: str, directory: str = COMMITS_DIR) -> str:
    return f"{directory}{version_prefix(version)[11:]}.{uuid}.json"


def checkpoint_path(version: int) -> str:
    return f"{version_prefix(version)}.checkpoint.parquet"


def v2_checkpoint_path(version: int, uuid: str, ext: str) -> str:
    return f"{version_prefix(version)}.checkpoint.{uuid}.{ext}"


def sidecar_path(name: str) -> str:
    return SIDECARS_DIR + name


def compacted_path(start: int, end: int) -> str:
    return f"{version_prefix(start)}.{version_prefix(end)[11:]}.compacted.json"


def checksum_path(version: int) -> str:
    return f"{version_prefix(version)}.crc"
