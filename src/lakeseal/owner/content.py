"""`Content`: what an owner looks at of a commit, as a value, whatever else the commit holds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lakeseal import typed_json
from lakeseal.protocol.actions import Action, CommitInfo, Metadata, Protocol
from lakeseal.protocol.codec import decode, decode_line


class Content(msgspec.Struct, frozen=True, kw_only=True):
    info: CommitInfo | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None

    @property
    def changes_metadata(self) -> bool:
        return self.protocol is not None or self.metadata is not None

    @classmethod
    def of(cls, data: bytes) -> Content:
        """Raises `BrokenCommit` where a line is not valid JSON; `codec.decode` is the judge of everything else."""
        try:
            lines = _decoder.decode_lines(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls.of_actions(decode(data))
        raws = [
            (name, raw)
            for line in lines
            for name, raw in (
                ("commitInfo", line.commit_info),
                ("protocol", line.protocol),
                ("metaData", line.meta_data),
            )
            if bytes(raw) not in _ABSENT
        ]
        return cls.of_actions(decode_line(b'{"%b":%b}' % (name.encode(), bytes(raw)))[0] for name, raw in raws)

    @classmethod
    def of_actions(cls, actions: Iterable[Action]) -> Content:
        info: CommitInfo | None = None
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        for action in actions:
            match action:
                case CommitInfo():
                    info = info or action
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
        return cls(info=info, protocol=protocol, metadata=metadata)


class _Line(msgspec.Struct, rename="camel"):
    commit_info: msgspec.Raw = msgspec.Raw()
    protocol: msgspec.Raw = msgspec.Raw()
    meta_data: msgspec.Raw = msgspec.Raw()


_ABSENT = (b"", b"null")
_decoder = typed_json.decoder(_Line)
