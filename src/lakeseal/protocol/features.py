"""Table features: what a table demands of those who read and write it.

Protocol versions before the lists (reader 1–2, writer 1–6) imply features; `reader_features` and `writer_features` say
all of them in the same words. `check_readable` and `check_writable` refuse a table by naming every feature that stands
in the way. `enable` and `disable` give the protocol that a commit would write.

A known feature that cannot be written stands in the way only while the table's metadata uses it: writer version 6
allows identity columns, and a table of that version that has none is safe to write to. An unknown one always does.
"""

from __future__ import annotations

import msgspec

from lakeseal.errors import InvalidArgument, InvalidMetadata, UnsupportedFeature
from lakeseal.protocol.actions import Metadata, Protocol
from lakeseal.protocol.feature_list import FEATURES, Feature, FeatureKind, FeatureUse, named
from lakeseal.protocol.properties import (
    FEATURE_PREFIX,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
    TableProperties,
    is_asked_of_the_protocol,
)

__all__ = [
    "DEFAULT_PROTOCOL",
    "FEATURES",
    "MAX_READER_VERSION",
    "MAX_WRITER_VERSION",
    "Feature",
    "asked",
    "check_consistent",
    "check_readable",
    "check_writable",
    "disable",
    "drop",
    "enable",
    "has_catalog",
    "named",
    "reader_features",
    "required_features",
    "supports",
    "writer_features",
]

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7

DEFAULT_PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
"""What a new table starts from; `enable` adds what its metadata needs."""

_RW = FeatureKind.READER_WRITER
_OTHER_CLIENT = "Set it with a client that can write such a table, and write the table with that one"


def reader_features(protocol: Protocol) -> frozenset[str]:
    """Every feature that readers must know, implied ones included. Readers go by this alone."""
    if protocol.min_reader_version >= MAX_READER_VERSION:
        return frozenset(protocol.reader_features or ())
    return frozenset(
        f.name for f in FEATURES.values() if f.legacy and f.kind is _RW and f.legacy[0] <= protocol.min_reader_version
    )


def writer_features(protocol: Protocol) -> frozenset[str]:
    """Every feature that writers must know, implied ones included."""
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return frozenset(protocol.writer_features or ())
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    return frozenset(f.name for f in FEATURES.values() if f.legacy and f.legacy[0] <= reader and f.legacy[1] <= writer)


def supports(protocol: Protocol, name: str) -> bool:
    """Whether a feature may be used on the table; a preview of it is as good."""
    names = {name} | {f.name for f in FEATURES.values() if f.stable_name == name}
    supported = writer_features(protocol)
    if name in FEATURES and FEATURES[name].kind is _RW:
        supported &= reader_features(protocol)
    return not names.isdisjoint(supported)


def check_consistent(protocol: Protocol, *, table: str | None = None, version: int | None = None) -> None:
    """Raises `InvalidMetadata` where versions and lists contradict each other."""
    problem = _contradiction(protocol)
    if problem is not None:
        raise InvalidMetadata(
            f"The table's protocol contradicts itself: {problem}",
            hint="Restore the commit that wrote the protocol, or mend it with the client that wrote it",
            table=table,
            version=version,
        )


def check_readable(protocol: Protocol, *, table: str | None = None, version: int | None = None) -> None:
    """Raises `UnsupportedFeature` that names what we would have to know to read the table."""
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise _too_new("reading", "reader", protocol.min_reader_version, table, version)
    check_consistent(protocol, table=table, version=version)
    _refuse("reading", [n for n in reader_features(protocol) if not _readable(n)], table, version)


def check_writable(
    protocol: Protocol, metadata: Metadata, *, table: str | None = None, version: int | None = None
) -> None:
    """Raises `UnsupportedFeature` that names what we would have to do to write to the table, or `InvalidMetadata`
    where protocol and metadata disagree on whether commits are managed."""
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        raise _too_new("writing", "writer", protocol.min_writer_version, table, version)
    check_readable(protocol, table=table, version=version)
    refused = [name for name in writer_features(protocol) if not _writable(name)]
    if refused:
        state = FeatureUse.of(metadata)
        _refuse("writing", [name for name in refused if _stands_in_the_way(name, state)], table, version)
    owner = TableProperties.of(metadata).managed_commit_owner_name
    if (owner is not None) != supports(protocol, "managedCommits"):
        raise InvalidMetadata(
            "The table names an owner of its commits but its protocol lacks managedCommits"
            if owner is not None
            else "The table's protocol has managedCommits but its metadata names no owner of its commits",
            hint="Nobody can say who decides on commits to this table: restore it to a version before this one",
            table=table,
            version=version,
        )
    if TableProperties.of(metadata).catalog_owner_name is not None and not has_catalog(protocol):
        raise InvalidMetadata(
            "The table names a catalog's owner but its protocol has neither catalogManaged nor "
            "coordinatedCommits-preview",
            hint="Nobody can say who decides on commits to this table: restore it to a version before this one",
            table=table,
            version=version,
        )


def has_catalog(protocol: Protocol) -> bool:
    """Whether commits to the table are decided on by a catalog: one of ours, or of others."""
    return supports(protocol, "catalogManaged") or supports(protocol, "coordinatedCommits-preview")


def required_features(metadata: Metadata) -> tuple[str, ...]:
    """The features that a table with this metadata must support, in the order of `FEATURES`."""
    state = FeatureUse.of(metadata)
    return tuple(
        f.name for f in FEATURES.values() if f.in_use is not None and f.stable_name is None and f.in_use(state)
    )


def enable(protocol: Protocol, *names: str) -> Protocol:
    """The protocol with these features and all that they require; the same protocol if it has them already.

    Versions become lists, and then everything that the versions implied is listed. Raises `InvalidArgument` for an
    unknown feature and `UnsupportedFeature` for one that Lakeseal could not honour.
    """
    wanted = [f for f in _with_required(names) if not supports(protocol, f.name)]
    for feature in wanted:
        if not feature.writable:
            raise UnsupportedFeature(
                f"The feature {feature.name} cannot be set by Lakeseal",
                hint="Leave out the column or the property that asks for it",
            )
    if not wanted:
        return protocol
    writer = list(protocol.writer_features or ())
    supported = writer_features(protocol) | reader_features(protocol) | {f.name for f in wanted}
    writer += [name for name in FEATURES if name in supported and name not in writer]
    # A version is enough for what versions can say; older readers then still read the table.
    reader_version = max(
        protocol.min_reader_version,
        *(f.legacy[0] if f.legacy else MAX_READER_VERSION for f in wanted if f.kind is _RW),
        1,
    )
    reader = None
    if reader_version == MAX_READER_VERSION:
        reader = list(protocol.reader_features or ())
        reader += [n for n in writer if n in FEATURES and FEATURES[n].kind is _RW and n not in reader]
    return msgspec.structs.replace(
        protocol,
        min_reader_version=reader_version,
        min_writer_version=MAX_WRITER_VERSION,
        reader_features=None if reader is None else tuple(reader),
        writer_features=tuple(writer),
    )


def asked(protocol: Protocol, metadata: Metadata, before: Metadata | None) -> tuple[Protocol, Metadata]:
    """The protocol with what the metadata's properties newly ask of it, and the metadata without these properties."""
    asks = {
        key: text
        for key, text in metadata.configuration.items()
        if is_asked_of_the_protocol(key) and (before is None or key not in before.configuration)
    }
    if not asks:
        return protocol, metadata
    rest = {key: text for key, text in metadata.configuration.items() if key not in asks}
    names = [named(key[len(FEATURE_PREFIX) :]) for key in asks if key.lower().startswith(FEATURE_PREFIX)]
    for feature in names:
        if feature.not_by_name or not feature.writable:
            raise UnsupportedFeature(
                f"The feature {feature.name} cannot be set as a property",
                hint=feature.not_by_name or feature.hint or _OTHER_CLIENT,
            )
    protocol = _at_least(protocol, asks.get(MIN_READER_VERSION), asks.get(MIN_WRITER_VERSION))
    return enable(protocol, *(f.name for f in names)), msgspec.structs.replace(metadata, configuration=rest)


def _at_least(protocol: Protocol, reader_text: str | None, writer_text: str | None) -> Protocol:
    """The protocol of at least these versions, with what they imply."""
    if reader_text is None and writer_text is None:
        return protocol
    reader = protocol.min_reader_version if reader_text is None else int(reader_text)
    writer = protocol.min_writer_version if writer_text is None else int(writer_text)
    if reader > MAX_READER_VERSION or writer > MAX_WRITER_VERSION:
        raise UnsupportedFeature(
            f"Lakeseal knows protocols up to reader version {MAX_READER_VERSION} and writer version "
            f"{MAX_WRITER_VERSION}, not {reader} and {writer}",
            hint="Ask for a lower version, or for the feature by its name: delta.feature.<name>=supported",
        )
    if reader < protocol.min_reader_version or writer < protocol.min_writer_version:
        raise InvalidArgument(
            f"A protocol cannot be lowered: it is at reader version {protocol.min_reader_version} and writer version "
            f"{protocol.min_writer_version}",
            hint="Files that are there may need it. Write them to a new table",
        )
    if (reader == MAX_READER_VERSION and writer < MAX_WRITER_VERSION) or (reader == 2 and writer < 5):
        needed = MAX_WRITER_VERSION if reader == MAX_READER_VERSION else 5
        raise InvalidArgument(
            f"Reader version {reader} goes with writer version {needed} or newer, not with {writer}",
            hint=f"Set {MIN_WRITER_VERSION}={needed} too",
        )
    if writer < MAX_WRITER_VERSION:
        return msgspec.structs.replace(protocol, min_reader_version=reader, min_writer_version=writer)
    implied = writer_features(protocol) | reader_features(protocol)
    listed = [name for name in FEATURES if name in implied]
    listed += [name for name in protocol.writer_features or () if name not in listed]
    for_readers = None
    if reader == MAX_READER_VERSION:
        for_readers = tuple(n for n in listed if n in reader_features(protocol) or _is_for_readers(n))
    return msgspec.structs.replace(
        protocol,
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=for_readers,
        writer_features=tuple(listed),
    )


def _is_for_readers(name: str) -> bool:
    return name in FEATURES and FEATURES[name].kind is _RW


def disable(protocol: Protocol, name: str) -> Protocol:
    """The protocol without a feature; what it required stays.

    Only what leaves no trace in files and statistics may go, so most reader features and implied ones raise
    `InvalidArgument`, as does one that another feature requires.
    """
    feature = named(name)
    name = feature.name
    listed = protocol.writer_features or ()
    if name not in listed:
        return protocol
    if (feature.kind is _RW and not feature.leaves_no_trace) or feature.legacy:
        raise InvalidArgument(f"The feature {name} cannot be dropped", hint="Older files of the table may depend on it")
    dependent = [n for n in listed if n in FEATURES and name in FEATURES[n].requires]
    if dependent:
        raise InvalidArgument(f"The feature {name} is required by {', '.join(dependent)}")
    readers = protocol.reader_features
    return msgspec.structs.replace(
        protocol,
        reader_features=None if readers is None else tuple(n for n in readers if n != name),
        writer_features=tuple(n for n in listed if n != name),
    )


def drop(protocol: Protocol, name: str, *, is_forgotten: bool = False) -> Protocol:
    """The protocol without a feature that nothing uses any more; what its versions implied beside it is listed then.

    Raises `InvalidArgument` where it has no such feature or another one requires it, and `UnsupportedFeature` where
    versions of the table may still need it to be read, unless the log `is_forgotten` that far.
    """
    feature = named(name)
    supported = writer_features(protocol) | reader_features(protocol)
    if feature.name not in supported:
        raise InvalidArgument(
            f"The table does not have the feature {feature.name}", hint=f"It has {', '.join(sorted(supported))}"
        )
    if feature.kind is _RW and not feature.leaves_no_trace and not is_forgotten:
        raise UnsupportedFeature(
            f"The feature {feature.name} is not dropped: older versions of the table need it to be read",
            hint="Write the rows to a new table, or drop it with Delta Spark",
        )
    dependent = [n for n in sorted(supported) if n in FEATURES and feature.name in FEATURES[n].requires]
    if dependent:
        raise InvalidArgument(f"The feature {feature.name} is required by {', '.join(dependent)}")
    whole = _at_least(protocol, None, str(MAX_WRITER_VERSION))
    left = reader_features(protocol) - {feature.name}
    return msgspec.structs.replace(
        whole,
        # Version 2 is for column mapping, and 3 for whatever is listed.
        min_reader_version=whole.min_reader_version if left else 1,
        reader_features=tuple(n for n in whole.reader_features or () if n != feature.name) if left else None,
        writer_features=tuple(n for n in whole.writer_features or () if n != feature.name),
    )


def _contradiction(protocol: Protocol) -> str | None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        return f"there are no versions {reader} and {writer}"
    if reader == MAX_READER_VERSION and protocol.reader_features is None:
        return "reader version 3 needs a list of reader features"
    if reader < MAX_READER_VERSION and protocol.reader_features is not None:
        return f"reader version {reader} cannot have a list of reader features"
    if writer == MAX_WRITER_VERSION and protocol.writer_features is None:
        return "writer version 7 needs a list of writer features"
    if writer < MAX_WRITER_VERSION and protocol.writer_features is not None:
        return f"writer version {writer} cannot have a list of writer features"
    if reader == MAX_READER_VERSION and writer < MAX_WRITER_VERSION:
        return f"reader version 3 needs writer version 7, not {writer}"
    one_sided = sorted(set(protocol.reader_features or ()) - set(protocol.writer_features or ()))
    if reader == MAX_READER_VERSION and one_sided:
        return f"{', '.join(one_sided)} is a feature for readers but not for writers"
    return None


def _readable(name: str) -> bool:
    return name in FEATURES and FEATURES[name].readable


def _writable(name: str) -> bool:
    return name in FEATURES and FEATURES[name].writable


def _stands_in_the_way(name: str, state: FeatureUse) -> bool:
    in_use = FEATURES[name].in_use if name in FEATURES else None
    return in_use is None or in_use(state)


def _with_required(names: tuple[str, ...]) -> list[Feature]:
    found: dict[str, Feature] = {}
    waiting = list(reversed(names))
    while waiting:
        feature = named(waiting.pop())
        if feature.name not in found:
            found[feature.name] = feature
            waiting.extend(feature.requires)
    return [f for f in FEATURES.values() if f.name in found]


def _refuse(doing: str, names: list[str], table: str | None, version: int | None) -> None:
    if not names:
        return
    names = sorted(names)
    hints = dict.fromkeys(FEATURES[n].hint for n in names if n in FEATURES and FEATURES[n].hint)
    raise UnsupportedFeature(
        f"{doing.capitalize()} this table needs {', '.join(names)}, which Lakeseal does not support",
        hint=". ".join(hints)
        or f"A newer Lakeseal may know it; until then use the client that wrote the table for {doing}",
        table=table,
        version=version,
    )


def _too_new(doing: str, side: str, needed: int, table: str | None, version: int | None) -> UnsupportedFeature:
    most = MAX_READER_VERSION if side == "reader" else MAX_WRITER_VERSION
    return UnsupportedFeature(
        f"{doing.capitalize()} this table needs {side} version {needed}; Lakeseal knows versions up to {most}",
        hint="Use a newer client",
        table=table,
        version=version,
    )
