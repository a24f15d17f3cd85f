"""PyPI's `unitycatalog-client` against a service, in its own environment (`.venv-peers/unity`); run as a program.

Reads `{"url", "token", "table"}` from its input, asks for everything that the client has a method for, and prints what
came back, as the client understood it: its models are pydantic's and strict, so an answer of another shape is an error.

The package has UC Delta API v1's methods and models, but not the four modules that these are to be sent with; those of
`unitycatalog.client` were generated from the same templates and stand in. Models that stand for one of several lose
what they have beyond the others in `from_dict`, so requests are made by constructors.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

from unitycatalog import client
from unitycatalog.client import models

for name in ("api_client", "api_response", "rest", "exceptions"):
    sys.modules[f"unitycatalog.delta.{name}"] = import_module(f"unitycatalog.client.{name}")
import_module("unitycatalog.delta.internal.serde.delta_data_type_module")  # types that are texts or objects
any_type = import_module("unitycatalog.delta.models.delta_data_type").DeltaDataType
struct = import_module("unitycatalog.delta.models.delta_struct_type").DeltaStructType
struct.from_dict = any_type.from_dict  # its own one forgets the fields
for module, found in (
    ("delta_load_table_response", "DeltaLoadTableResponse"),
    ("delta_staging_table_response", "DeltaStagingTableResponse"),
    ("delta_credentials_response", "DeltaCredentialsResponse"),
    ("delta_catalog_config", "DeltaCatalogConfig"),
):
    # Where the sender looks for what it is to make of an answer.
    setattr(models, found, getattr(import_module(f"unitycatalog.delta.models.{module}"), found))

from unitycatalog.client.exceptions import ApiException  # noqa: E402
from unitycatalog.delta.api.delta_configuration_api import DeltaConfigurationApi  # noqa: E402
from unitycatalog.delta.api.delta_tables_api import DeltaTablesApi  # noqa: E402
from unitycatalog.delta.api.delta_temporary_credentials_api import DeltaTemporaryCredentialsApi  # noqa: E402
from unitycatalog.delta.models.delta_add_commit_update import DeltaAddCommitUpdate  # noqa: E402
from unitycatalog.delta.models.delta_assert_etag import DeltaAssertEtag  # noqa: E402
from unitycatalog.delta.models.delta_assert_table_uuid import DeltaAssertTableUUID  # noqa: E402
from unitycatalog.delta.models.delta_commit import DeltaCommit  # noqa: E402
from unitycatalog.delta.models.delta_create_staging_table_request import DeltaCreateStagingTableRequest  # noqa: E402
from unitycatalog.delta.models.delta_create_table_request import DeltaCreateTableRequest  # noqa: E402
from unitycatalog.delta.models.delta_error_type import DeltaErrorType  # noqa: E402
from unitycatalog.delta.models.delta_rename_table_request import DeltaRenameTableRequest  # noqa: E402
from unitycatalog.delta.models.delta_report_metrics_request import DeltaReportMetricsRequest  # noqa: E402
from unitycatalog.delta.models.delta_update_table_request import DeltaUpdateTableRequest  # noqa: E402


def shown(answer: Any) -> Any:
    """As JSON; what a model holds by the names that travel."""
    return json.loads(answer.to_json()) if hasattr(answer, "to_json") else answer


async def refused(asked: Any) -> int:
    try:
        await asked
    except ApiException as error:
        return int(error.status)
    raise AssertionError("this was to be refused")


async def lists(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    catalogs, schemas, tables = client.CatalogsApi(api), client.SchemasApi(api), client.TablesApi(api)
    full_name = f"main.sales.{said['table']}"
    made = await schemas.create_schema(models.CreateSchema(name="extra", catalog_name="main"))
    answers = {
        "catalogs": await catalogs.list_catalogs(),
        "catalog": await catalogs.get_catalog("main"),
        "schemas": await schemas.list_schemas("main"),
        "schema": await schemas.get_schema("main.sales"),
        "made": made,
        "dropped": await schemas.delete_schema("main.extra"),
        "tables": await tables.list_tables("main", "sales"),
        "table": await tables.get_table(full_name),
        "table dropped": await tables.delete_table("main.sales.spare"),
        "tables after": await tables.list_tables("main", "sales"),
        "metastore": await client.MetastoresApi(api).summary(),
    }
    return {name: shown(answer) for name, answer in answers.items()}


async def preview(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    commits = client.DeltaCommitsApi(api)
    table = {"table_id": said["table_id"], "table_uri": said["table_uri"]}
    info = models.DeltaCommitInfo(**said["preview_commit"])
    await commits.commit(models.DeltaCommit(**table, commit_info=info))
    await commits.commit(models.DeltaCommit(**table, latest_backfilled_version=0))
    return {}


async def told(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    """An answer that this client cannot ask for, as it sends no body with GET; it reads it."""
    return {"told": shown(models.DeltaGetCommitsResponse.from_dict(said["told"]))}


async def delta(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    tables, lent = DeltaTablesApi(api), DeltaTemporaryCredentialsApi(api)
    where = ("main", "sales")
    loaded = await tables.load_table(*where, said["table"])
    update = DeltaUpdateTableRequest(
        requirements=[
            DeltaAssertTableUUID(type="assert-table-uuid", uuid=loaded.metadata.table_uuid),
            DeltaAssertEtag(type="assert-etag", etag=loaded.metadata.etag),
        ],
        updates=[DeltaAddCommitUpdate(action="add-commit", commit=DeltaCommit(**said["commit"]))],
    )
    answers = {
        "config": await DeltaConfigurationApi(api).get_config("main", "1.0"),
        "loaded": loaded,
        "updated": await tables.update_table(*where, said["table"], update),
        "exists": await tables.table_exists(*where, said["table"]),
        "lent": await lent.get_table_credentials("READ", *where, said["table"]),
        "lent place": await lent.get_temporary_path_credentials(said["place"], "READ_WRITE"),
        "metrics": await tables.report_metrics(
            *where, said["table"], DeltaReportMetricsRequest.from_dict({"table-id": loaded.metadata.table_uuid})
        ),
        "renamed": await tables.rename_table(
            *where, said["table"], DeltaRenameTableRequest.from_dict({"new-name": "sold"})
        ),
    }
    answers["dropped"] = await tables.delete_table(*where, "sold")
    missing = await refused(tables.load_table(*where, "sold"))
    told = {name: shown(answer) for name, answer in answers.items()}
    return {**told, "missing": missing, "error types": [one.value for one in DeltaErrorType]}


async def begun(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    staged = await DeltaTablesApi(api).create_staging_table(
        "main", "sales", DeltaCreateStagingTableRequest.from_dict({"name": "new"})
    )
    lent = await DeltaTemporaryCredentialsApi(api).get_staging_table_credentials(staged.table_id)
    return {"staged": shown(staged), "lent": shown(lent)}


async def made(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    made = await DeltaTablesApi(api).create_table("main", "sales", DeltaCreateTableRequest.from_dict(said["new"]))
    return {"made": shown(made)}


async def absent(api: client.ApiClient, said: dict[str, Any]) -> dict[str, Any]:
    """What a catalog of tables has not; the client is told so in a way that it reads."""
    asked = {
        "functions": client.FunctionsApi(api).list_functions("main", "sales"),
        "volumes": client.VolumesApi(api).list_volumes("main", "sales"),
        "models": client.RegisteredModelsApi(api).list_registered_models(),
        "external locations": client.ExternalLocationsApi(api).list_external_locations(),
        "credentials": client.CredentialsApi(api).list_credentials(),
        "grants": client.GrantsApi(api).get("table", "main.sales.orders"),
    }
    return {name: await refused(one) for name, one in asked.items()}


PARTS = {
    "lists": lists,
    "preview": preview,
    "told": told,
    "delta": delta,
    "begun": begun,
    "made": made,
    "absent": absent,
}


async def main() -> None:
    said = json.load(sys.stdin)
    configuration = client.Configuration(host=said["url"] + "/api/2.1/unity-catalog")
    async with client.ApiClient(configuration, "Authorization", f"Bearer {said['token']}") as api:
        print(json.dumps({part: await PARTS[part](api, said) for part in said["parts"]}))


if __name__ == "__main__":
    asyncio.run(main())
