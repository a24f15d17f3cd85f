"""`FileFormat`: which format files have, what they are called, and which types they can hold.

A type that a format cannot hold, or that Spark would not read back, is refused by its name and column before anything
is written. Compression is by the names that Spark knows; not every format takes every one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from lakeseal.errors import InvalidArgument, UnsupportedType
from lakeseal.protocol.schema import (
    BINARY,
    STRING,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
    VariantType,
    dotted,
)

Path = tuple[str, ...]

_DEFAULT_CODEC: Mapping[str, str] = {"parquet": "snappy", "orc": "snappy", "csv": "none", "json": "none"}
# Per format: the codecs by Spark's names, and what file names say.
_EXTENSIONS: Mapping[str, Mapping[str, str]] = {
    "parquet": {
        "snappy": ".snappy.parquet",
        "zstd": ".zstd.parquet",
        "gzip": ".gz.parquet",
        "lz4": ".lz4raw.parquet",
        "lz4_raw": ".lz4raw.parquet",
        "brotli": ".br.parquet",
        "none": ".parquet",
        "uncompressed": ".parquet",
    },
    "orc": {
        "snappy": ".snappy.orc",
        "zstd": ".zstd.orc",
        "zlib": ".zlib.orc",
        "lz4": ".lz4.orc",
        "none": ".orc",
        "uncompressed": ".orc",
    },
    "csv": {"none": ".csv", "uncompressed": ".csv", "gzip": ".csv.gz"},
    "json": {"none": ".json", "uncompressed": ".json", "gzip": ".json.gz"},
}
FORMATS = tuple(_EXTENSIONS)


class FileFormat(Struct, frozen=True, kw_only=True):
    name: str = "parquet"
    compression: str | None = None
    """None for the format's own default."""
    header: bool = False
    """Whether every CSV file begins with the names of its columns."""

    def __post_init__(self) -> None:
        if self.name not in _EXTENSIONS:
            raise InvalidArgument(f"There is no file format {self.name!r}", hint=f"Choose one of {', '.join(FORMATS)}")
        if self.codec not in _EXTENSIONS[self.name]:
            raise InvalidArgument(
                f"Files of the format {self.name} cannot be compressed by {self.codec!r}",
                hint=f"Choose one of {', '.join(_EXTENSIONS[self.name])}",
            )
        if self.header and self.name != "csv":
            raise InvalidArgument(f"Files of the format {self.name} have no header", hint="Leave header out")

    @property
    def codec(self) -> str:
        return self.compression or _DEFAULT_CODEC[self.name]

    @property
    def extension(self) -> str:
        return _EXTENSIONS[self.name][self.codec]

    @property
    def describes_itself(self) -> bool:
        """Whether a file says which columns of which types it has."""
        return self.name in ("parquet", "orc")

    def check(self, schema: StructType) -> None:
        for path, data_type in _types(schema, ()):
            reason = self._refusal(data_type, nested=len(path) > 1)
            if reason is not None:
                raise UnsupportedType(
                    f"A file of the format {self.name} cannot hold {reason}",
                    column=dotted(path),
                    hint="Cast the column, leave it out, or write Parquet",
                )

    def _refusal(self, data_type: DataType, *, nested: bool) -> str | None:
        match data_type:
            case VariantType() if self.name != "parquet":
                return f"the type {data_type}"
            case StructType() | ArrayType() | MapType() if self.name == "csv":
                return f"the type {data_type}"
            case MapType(key=key) if self.name == "json" and key != STRING:
                return f"a map with keys of the type {key}"
            case _ if data_type == BINARY and self.name == "csv":
                return "the type binary"
            case _ if data_type == VOID and self.name == "csv":
                return "the type void"
            case _ if data_type == TIMESTAMP_NTZ and self.name == "orc" and nested:
                return "the type timestamp_ntz inside of another"
            case _:
                return None


PARQUET = FileFormat()


def format_of(file: str) -> str | None:
    """The format that a file's name tells; None if it tells none."""
    name = file.rpartition("/")[2].lower()
    for suffix in (".gz", ".gzip", ".zst", ".bz2", ".snappy", ".lz4", ".deflate"):
        name = name.removesuffix(suffix)
    return next((known for known in FORMATS if name.endswith(f".{known}")), None)


def _types(schema: StructType, path: Path) -> Iterator[tuple[Path, DataType]]:
    for field in schema.fields:
        yield from _of_type(field.type, (*path, field.name))


def _of_type(data_type: DataType, path: Path) -> Iterator[tuple[Path, DataType]]:
    yield path, data_type
    match data_type:
        case StructType():
            yield from _types(data_type, path)
        case ArrayType(element=element):
            yield from _of_type(element, (*path, "element"))
        case MapType(key=key, value=value):
            yield from _of_type(key, (*path, "key"))
            yield from _of_type(value, (*path, "value"))
        case _:
            return
