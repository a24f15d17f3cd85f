"""`ServiceCall`: one thing that a service can be asked for, declared once.

A call is the message that asks for it: a frozen value whose fields travel as one JSON object. Its class says the rest:
its name and with that its route, the type of the reply (`ServiceCall[Reply]`), what it is for (the first line of its
docstring), who may ask, how much may be sent, whether a lost answer leaves something unknown, and what is then done.
Routes, numbers and OpenAPI are made from the class; a client sends one and gets the reply. Nothing else knows a call.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args

from msgspec import Struct

from lakeseal.errors import NotAllowed
from lakeseal.service.access import Caller, Role

if TYPE_CHECKING:
    from lakeseal.service.service import Service

Reply = TypeVar("Reply", covariant=True)
_declared: list[type[ServiceCall[Any]]] = []


class ServiceCall(Struct, Generic[Reply], frozen=True, kw_only=True):
    name: ClassVar[str]
    """That of the class, in lower case: `get_commits`."""
    path: ClassVar[str]
    reply: ClassVar[Any]
    summary: ClassVar[str]
    role: ClassVar[Role] = Role.WRITER
    decides: ClassVar[bool] = True
    """Whether it may change something, so that a lost answer leaves its outcome unknown."""
    may_be_large: ClassVar[bool] = False
    """Whether its body may have more bytes than others, up to `ServiceSettings.max_upload`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        cls.path = "/v1/" + cls.name.replace("_", "-")
        cls.summary = (cls.__doc__ or "").partition("\n")[0].removesuffix(".")
        for base in cls.__dict__.get("__orig_bases__", ()):
            (reply, *_) = get_args(base) or (None,)
            if reply is not None and not isinstance(reply, TypeVar):
                cls.reply = reply
        if "perform" in cls.__dict__:
            _declared.append(cls)

    def is_much_work(self) -> bool:
        """Whether what is done for it, or its answer, may be large, however short the message is: see `large`."""
        return False

    @abstractmethod
    def check(self, service: Service, caller: Caller) -> None:
        """Before anything is done: whether the caller may ask for this here."""

    @abstractmethod
    def perform(self, service: Service, caller: Caller) -> Reply:
        """In any thread."""


class OwnerCall(ServiceCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    """Of `OwnerEndpoint`: about tables, each of which the caller must have the role for."""

    @abstractmethod
    def about(self) -> Sequence[str]:
        """The tables that it names."""

    def needed(self) -> Role:
        return self.role

    def check(self, service: Service, caller: Caller) -> None:
        named = self.about()
        for table in named:
            service.places.check_name(table)
        caller.check(self.needed(), named)
        for table in named:
            service.places.check(table)


class BookCall(ServiceCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    """Of `steps.books`. Pipelines and their names belong to no place, so a role counts only where it is granted for all
    tables: a reader sees what there is, a writer changes it. What one run of a pipeline records may be large."""

    may_be_large: ClassVar[bool] = True

    def check(self, service: Service, caller: Caller) -> None:
        if not caller.may_everywhere(self.role):
            raise NotAllowed(
                f"Pipelines and their steps belong to no table, so that they need the role {self.role} for all tables",
                hint="Ask for a token whose role has no prefix",
            )


class BookQuestion(BookCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    """Changes nothing."""

    role: ClassVar[Role] = Role.READER
    decides: ClassVar[bool] = False


def calls_of(module: str) -> tuple[type[ServiceCall[Any]], ...]:
    """All that a module declares, in its order."""
    return tuple(call for call in _declared if call.__module__ == module)
