"""A function of the user's as a transform, named in YAML: `transform: {python: "transforms.py:cleaned"}`.

The name is `FILE.py:FUNCTION`, from the directory of the process as other paths are, or `package.module:FUNCTION`. It
is loaded when a run needs it, and is the pipeline's own code: whoever writes the file may run anything. The function
gets a DataFrame for each input, and returns one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lakeseal.errors import InvalidArgument


class PythonTransform(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    python: str
    """`FILE.py:FUNCTION` or `package.module:FUNCTION`; it gets a DataFrame for each input, and returns one."""

    def __post_init__(self) -> None:
        module, sign, name = self.python.rpartition(":")
        if not sign or not module or not name.isidentifier():
            raise InvalidArgument(f"{self.python!r} names no function", hint="python: transforms.py:cleaned")

    @property
    def _module(self) -> str:
        return self.python.rpartition(":")[0]

    def source(self) -> str:
        """What tells that the function may have changed."""
        if self._module.endswith(".py"):
            return self.python + hashlib.sha256(_read(Path(self._module))).hexdigest()
        return self.python

    def load(self) -> Callable[..., Any]:
        name = self.python.rpartition(":")[2]
        try:
            module = _from_file(Path(self._module)) if self._module.endswith(".py") else _imported(self._module)
            function = getattr(module, name)
        except InvalidArgument:
            raise
        except AttributeError:
            raise InvalidArgument(f"{self._module} has no function {name!r}") from None
        except Exception as error:  # whatever the user's module raises while it is loaded
            raise InvalidArgument(f"{self._module} can't be loaded: {type(error).__name__}: {error}") from error
        if not callable(function):
            raise InvalidArgument(f"{self.python!r} is no function")
        return function  # type: ignore[no-any-return]


def _imported(name: str) -> Any:
    return importlib.import_module(name)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"There is no file {file} to load a transform from: {error}") from error


def _from_file(file: Path) -> Any:
    """Executors have no such file: what the module defines travels by value with Spark's plans."""
    _read(file)
    name = f"lakeseal_transform_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    from pyspark import cloudpickle  # a function of DataFrames needs Spark anyway

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
