"""`UnityCall`: one thing that engines ask a catalog for, declared once as every call is, in that protocol's own form.

A call's fields come from its route (`{catalog}`), from the query, and from `body`, where it has one. Replies are JSON;
errors are `{"error": {"message", "type", "code"}}`, which clients go by: all but 400, 404 and 409 is asked for again,
for minutes. So what is final for a client has one of these, a policy's no and a role's among them. Only a wrong token
is 401 where nothing is decided: clients know by it that they need another one, and do not repeat it there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic

import msgspec
from msgspec import Meta
from starlette.responses import Response

from lakeseal import errors
from lakeseal.catalog.names import NamedTable
from lakeseal.catalog.table_name import TableName
from lakeseal.catalog.unity.messages import BASE, Refusal, RefusedReply
from lakeseal.errors import InvalidArgument, LakesealError
from lakeseal.service.access import Caller, Role
from lakeseal.service.call import Reply, ServiceCall

if TYPE_CHECKING:
    from lakeseal.service.service import Service

Part = Annotated[str, Meta(min_length=1, max_length=255)]
_QUERY = 20

# The first that fits.
_ERRORS: tuple[tuple[type[LakesealError], int, str], ...] = (
    (errors.RequestTooLarge, 400, "InvalidParameterValueException"),
    (errors.NotAuthenticated, 401, "NotAuthorizedException"),
    (errors.NotAllowed, 400, "PermissionDeniedException"),
    (errors.MetadataChangedException, 409, "UpdateRequirementConflictException"),
    (errors.ConcurrentModification, 409, "CommitVersionConflictException"),
    (errors.SchemaNotFound, 404, "NoSuchSchemaException"),
    (errors.TableNotFound, 404, "NoSuchTableException"),
    (errors.VersionNotFound, 400, "InvalidParameterValueException"),
    (errors.NotFound, 404, "NotFoundException"),
    (errors.AlreadyExists, 409, "AlreadyExistsException"),
    (errors.OwnerBusy, 429, "ResourceExhaustedException"),
    (errors.ReleaseUnderway, 409, "CommitVersionConflictException"),
    (errors.Refused, 400, "InvalidParameterValueException"),
    (errors.InvalidInput, 400, "InvalidParameterValueException"),
    (errors.Unsupported, 400, "UnsupportedTableFormatException"),
    (errors.CorruptTable, 400, "InvalidParameterValueException"),
    (errors.StorageUnavailable, 503, "InternalServerErrorException"),
)
_UNKNOWN = (500, "CommitStateUnknownException")


class UnityCall(ServiceCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    method: ClassVar[str] = "GET"
    route: ClassVar[str]
    """Below `BASE`."""
    status: ClassVar[int] = 200
    decides: ClassVar[bool] = False
    role: ClassVar[Role] = Role.READER

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "route" in cls.__dict__:
            cls.path = BASE + cls.route

    @classmethod
    def of(cls, route: dict[str, str], query: list[tuple[str, str]], body: Any) -> UnityCall[Any]:
        """From the parts of a request; what the query has beyond the call's fields is let through."""
        if len(query) > _QUERY:
            raise InvalidArgument(f"A request has at most {_QUERY} parameters")
        known = cls.__struct_fields__
        said = {name: text for name, text in query if name in known and name not in route and name != "body"}
        values: dict[str, Any] = {**said, **route}
        if "body" in known:
            values["body"] = body
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidArgument(f"This is no {cls.name}: {error}") from None

    @property
    def about_table(self) -> str | None:
        """For the log."""
        return None

    def committed(self, reply: Any) -> tuple[str, int] | None:
        """The place of a table and the version of it that this reply is about, of a call that commits."""
        return None

    def encoded(self, reply: Any) -> Response:
        if self.status == 204:
            return Response(status_code=204)
        return Response(msgspec.json.encode(reply), self.status, media_type="application/json")


class OfTable(UnityCall[Reply], Generic[Reply], frozen=True, kw_only=True):
    """About a table by its name, for which the caller must have the role."""

    @abstractmethod
    def named(self) -> TableName:
        """The name that it is about."""

    @property
    def about_table(self) -> str | None:
        return str(self.named())

    def check(self, service: Service, caller: Caller) -> None:
        """Done when the table is found, which is once."""

    def found(self, service: Service, caller: Caller) -> NamedTable:
        """Whoever may not see a table is not told that it is there."""
        found = service.names.resolve(self.named())
        if not caller.may(Role.READER, found.uri):
            raise errors.TableNotFound(f"There is no table named {self.named()}")
        caller.check(self.role, (found.uri,))
        service.places.check_name(found.uri)
        service.places.check(found.uri)
        return found


class Question(UnityCall[Any], frozen=True, kw_only=True):
    """About no table: everybody who is known may ask, and is told of what they may read."""

    def check(self, service: Service, caller: Caller) -> None:
        pass


def unity_error(error: LakesealError, *, decides: bool) -> RefusedReply:
    status, kind = next(((status, kind) for cls, status, kind in _ERRORS if isinstance(error, cls)), _UNKNOWN)
    if decides and status == 401:
        status = 400
    message = error.message if not error.hint else f"{error.message}. {error.hint}"
    return RefusedReply(error=Refusal(message=message[:5000], type=kind, code=status))
