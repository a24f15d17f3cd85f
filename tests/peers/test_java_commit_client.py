"""Delta's Java commit client (`UCCommitCoordinatorClient` of delta-storage), which Delta Spark commits with, called
directly, over UC Delta API v1 and over preview commits: it commits, is told of a conflict and goes on after it, gets
through lost replies without writing twice, takes a policy's no for final, and publishes what it committed. Over preview
commits a lost reply is a failure that it says may be tried again, and whoever does stages another file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeseal.clock import now_ms
from lakeseal.testing.proxy import ProxyFault, Request, Verdict, faulty_proxy
from support.unity_catalog import Catalog, open_catalog

pytestmark = pytest.mark.peers

# One call of the client: a commit, or with no lines only the question what there is.
CALL = """
    from py4j.protocol import Py4JJavaError
    jvm = spark._jvm
    commits = jvm.io.delta.storage.commit
    settings = jvm.java.util.HashMap()
    for name, value in {"uri": url, "token": token, "deltaRestApi.enabled": rest}.items():
        settings.put(name, value)
    factory = jvm.org.apache.spark.sql.delta.coordinatedcommits.UCTokenBasedRestClientFactory
    asked = factory.createUCClient(settings)
    client = commits.uccommitcoordinator.UCCommitCoordinatorClient(jvm.java.util.HashMap(), asked)
    called = jvm.java.util.HashMap()
    called.put("io.unitycatalog.tableId", table_id)
    namespace = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 2)
    namespace[0], namespace[1] = "main", "sales"
    name = commits.TableIdentifier(namespace, table)
    log = jvm.org.apache.hadoop.fs.Path("file:" + place + "/_delta_log")
    described = commits.TableDescriptor(log, jvm.java.util.Optional.of(name), called)
    hadoop = spark._jsc.hadoopConfiguration()
    store = jvm.io.delta.storage.LocalLogStore(hadoop)
    result = {"metastore": asked.getMetastoreId()}
    if lines:
        actions = jvm.java.util.ArrayList()
        for line in lines:
            actions.add(line)
        parse = jvm.org.apache.spark.sql.delta.actions.Action.fromJson
        protocol, metadata = parse(first["protocol"]), parse(first["metaData"])
        said = commits.UpdatedActions(parse(lines[0]), metadata, protocol, metadata, protocol)
        try:
            client.commit(store, hadoop, described, version, actions.iterator(), said)
            # What it has committed it publishes behind that, in a thread of its own; here until it is done.
            client.backfillToVersion(store, hadoop, described, version, None)
            result["outcome"] = "committed"
        except Py4JJavaError as error:
            failed = error.java_exception
            assert failed.getClass().getSimpleName() == "CommitFailedException", str(error)
            result["outcome"] = "conflict" if failed.getConflict() else "failed"
            result["retryable"] = failed.getRetryable()
            result["message"] = failed.getMessage()
    told = client.getCommits(described, None, None)
    result["latest"] = told.getLatestTableVersion()
"""


class JavaClient:
    def __init__(self, delta_spark: Any, catalog: Catalog, url: str, *, rest: bool) -> None:
        self._run, self._catalog, self._url, self._rest = delta_spark.run, catalog, url, rest

    def commit(self, table: str, version: int, *, token: str | None = None) -> dict[str, Any]:
        now = now_ms() + version
        info = {"timestamp": now, "inCommitTimestamp": now, "operation": "WRITE", "operationParameters": {}}
        add = {"path": uuid.uuid4().hex, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        actions = [{"commitInfo": {**info, "txnId": str(uuid.uuid4())}}, {"add": add}]
        lines = [json.dumps(line) for line in actions]
        for _ in range(5):
            done = self.ask(table, lines, version, token=token)
            # As Delta Spark does when it is told so: the same transaction once more, in a new file.
            if done["outcome"] != "failed" or not done["retryable"]:
                break
        return done

    def ask(
        self, table: str, lines: list[str] | None = None, version: int = 0, *, token: str | None = None
    ) -> dict[str, Any]:
        place = self._catalog.folder / table
        log = (place / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        first = {name: line for line in log for name in json.loads(line) if name in ("protocol", "metaData")}
        found: dict[str, Any] = self._run(
            CALL,
            url=self._url,
            token=token or self._catalog.token,
            rest="true" if self._rest else "false",
            table=table,
            table_id=json.loads(first["metaData"])["metaData"]["configuration"]["io.unitycatalog.tableId"],
            place=str(place),
            lines=lines,
            version=version,
            first=first,
        )
        return found


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Catalog]:
    """Only `somebody` may commit."""
    policy = {"policy": "allowed-principals", "principals": ["somebody"], "tables": f"file://{tmp_path}/orders"}
    with open_catalog(tmp_path, policies=(policy,), publish_every_s=3600.0) as catalog:
        yield catalog


@pytest.mark.parametrize(("rest", "kind"), [(True, "catalog"), (False, "catalog"), (False, "coordinated")])
def test_the_java_client_commits_meets_conflicts_and_gets_through_lost_replies(
    guarded: Catalog, delta_spark: Any, rest: bool, kind: str
) -> None:
    table = guarded.create("orders", kind=kind)
    path = guarded.path("orders") if rest else "/delta/preview/commits"
    faults = [ProxyFault.LOSE_REPLY, ProxyFault.LOSE_REQUEST, 503]

    def lost(request: Request) -> Verdict:
        is_commit = request.method == "POST" and request.path.endswith(path)
        return faults.pop() if is_commit and faults else None

    direct = JavaClient(delta_spark, guarded, guarded.url, rest=rest)
    asked = direct.ask("orders")
    assert (asked["metastore"], asked["latest"]) == (guarded.service.identity, 0)
    done = direct.commit("orders", 1)
    assert (done["outcome"], done["latest"]) == ("committed", 1), done
    conflict = direct.commit("orders", 1)
    assert (conflict["outcome"], conflict["retryable"]) == ("conflict", True), conflict
    assert direct.commit("orders", 2)["outcome"] == "committed", "it goes on at the version that follows"
    with faulty_proxy(guarded.url, lost) as proxy:
        done = JavaClient(delta_spark, guarded, proxy.endpoint, rest=rest).commit("orders", 3)
    assert (done["outcome"], done["latest"], faults) == ("committed", 3, []), done
    refused = direct.commit("orders", 4, token=guarded.login("writer", name="stranger"))
    assert (refused["outcome"], refused["retryable"]) == ("failed", False), refused
    assert "stranger" in refused["message"]
    assert table.version() == 3
    assert len(table.files()) == 3, "each commit is there once"
    log = guarded.folder / "orders" / "_delta_log"
    assert all((log / f"{version:020d}.json").exists() for version in range(4)), "and was published by the client"
