"""Set up the peers that need more than PyPI, once: Delta Spark in `.venv-peers`, its JARs from Maven Central, and S3A
for Hadoop's committers, which goes with our own Spark and must be of its Hadoop's version; a Kafka broker; a lakeFS
server, built with Go; and a client of Unity Catalog from PyPI, which wants an older pydantic than ours.

Delta Spark refuses Spark versions newer than it knows, so it gets an environment of its own. Spark fetches the JARs
itself (`spark.jars.packages`), so whatever the user configured for Spark or Ivy counts. A release is on PyPI before its
JARs are everywhere, so the release before it stands in, and this says so. Where no JARs can be had at all, this says
what is skipped and succeeds: the tests beside Delta Spark then skip themselves.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"
JARS = VENV / "delta-jars.txt"
S3A_JARS = VENV / "s3a-jars.txt"
KAFKA_JARS = VENV / "kafka-jars.txt"
KAFKA = "4.1.1"
SPARK_KAFKA_JARS = VENV / "spark-kafka-jars.txt"
SPARK_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
# What the source takes tokens by comes later than Spark itself to some mirrors; that of an older Spark does.
SPARK_KAFKA_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
OLDER_TOKENS = "4.0.0"
DYNAMODB_JARS = VENV / "dynamodb-jars.txt"
DYNAMODB = "1.12.797"
LAKEFS = VENV / "bin" / "lakefs"
LAKEFS_MODULE = "github.com/treeverse/lakefs"
LAKEFS_RELEASES = ["v1.86.0", "v1.84.0", "v1.83.0"]
BUILD_SECONDS = 15 * 60
UNITY = VENV / "unity"
UNITY_CLIENT = "unitycatalog-client==0.7.0"
PYSPARK = "pyspark==4.2.0"
RELEASES = ["delta-spark==4.4.1", "delta-spark==4.4.0"]
RESOLVE = """
import sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
configure_spark_with_delta_pip(builder.config("spark.jars.ivy", sys.argv[1])).getOrCreate().stop()
"""
RESOLVE_PACKAGE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2])
builder = builder.config("spark.jars.excludes", ",".join(sys.argv[3:]))
builder.getOrCreate().stop()
"""


def main() -> None:
    set_up_delta_spark()
    set_up_s3a()
    set_up_kafka()
    set_up_spark_kafka()
    set_up_dynamodb()
    set_up_unity_client()
    set_up_lakefs()


def set_up_unity_client() -> None:
    listed = UNITY / "client.txt"
    if listed.exists() and listed.read_text(encoding="utf-8") == UNITY_CLIENT:
        return
    run([sys.executable, "-m", "venv", "--clear", str(UNITY)])
    command = [str(UNITY / "bin" / "python"), "-m", "pip", "install", "--quiet", UNITY_CLIENT]
    if subprocess.run(command).returncode:
        print(f"peers: SKIPPED {UNITY_CLIENT}: PyPI did not give it", flush=True)
        shutil.rmtree(UNITY)
        return
    listed.write_text(UNITY_CLIENT, encoding="utf-8")
    print(f"peers: {UNITY_CLIENT} is ready", flush=True)


def set_up_lakefs() -> None:
    """From the source in Go's module proxy: as the main module, for it replaces one of its dependencies, which
    `go install` refuses. Its web pages are not in there, and not needed."""
    if LAKEFS.exists() or os.environ.get("LAKESEAL_LAKEFS_ENDPOINT"):
        return
    go = shutil.which("go")
    if go is None:
        print("peers: SKIPPED lakeFS: there is no Go to build its server with", flush=True)
        return
    for release in LAKEFS_RELEASES:
        try:
            build_lakefs(go, release)
        except subprocess.TimeoutExpired:
            print(f"peers: SKIPPED lakeFS: its server was not built within {BUILD_SECONDS // 60} minutes", flush=True)
            return
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"peers: lakeFS {release} could not be built ({error})", flush=True)
        else:
            print(f"peers: lakeFS {release} is ready", flush=True)
            return
    print("peers: SKIPPED lakeFS: Go's module proxy did not give its source", flush=True)


def build_lakefs(go: str, release: str) -> None:
    source = VENV / "lakefs-source"
    LAKEFS.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(source, ignore_errors=True)
    command = [go, "mod", "download", "-json", f"{LAKEFS_MODULE}@{release}"]
    found = subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=VENV)
    # What Go keeps is read-only, and a build may complete the list of checksums.
    shutil.copytree(json.loads(found.stdout)["Dir"], source, copy_function=shutil.copyfile)
    subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
    print(f"peers: building lakeFS {release}, once; this takes minutes", flush=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod"}
    command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(LAKEFS), "./cmd/lakefs"]
    subprocess.run(command, check=True, cwd=source, env=environment, timeout=BUILD_SECONDS, stderr=subprocess.DEVNULL)
    shutil.rmtree(source)


def set_up_s3a() -> None:
    hadoop = hadoop_version()
    set_up_package(f"S3A {hadoop}", f"org.apache.hadoop:hadoop-aws:{hadoop}", S3A_JARS, "Hadoop's committers")


def set_up_kafka() -> None:
    set_up_package(f"Kafka {KAFKA}", f"org.apache.kafka:kafka_2.13:{KAFKA}", KAFKA_JARS, "a real broker of Kafka")


def set_up_spark_kafka() -> None:
    if SPARK_KAFKA_JARS.exists():
        return
    source, ivy = f"{SPARK_KAFKA}:{PYSPARK.partition('==')[2]}", VENV / "ivy" / "spark-kafka"
    if not resolved(ivy, source) and not (
        resolved(ivy, source, SPARK_KAFKA_TOKENS)
        and resolved(ivy, f"{SPARK_KAFKA_TOKENS}:{OLDER_TOKENS}", "org.apache.kafka:kafka-clients")
    ):
        print("peers: SKIPPED Delta Spark beside Kafka: Maven Central did not give Spark's source", flush=True)
        return
    list_jars(SPARK_KAFKA_JARS, ivy)
    print(f"peers: {source} is ready", flush=True)


def set_up_dynamodb() -> None:
    """Delta Spark loads all commit coordinators that it knows when it meets one, that of DynamoDB too."""
    package = f"com.amazonaws:aws-java-sdk-dynamodb:{DYNAMODB}"
    set_up_package(f"DynamoDB's SDK {DYNAMODB}", package, DYNAMODB_JARS, "Delta Spark as a client of our catalog")


def set_up_package(name: str, package: str, listed: Path, skipped: str) -> None:
    if listed.exists():
        return
    ivy = VENV / "ivy" / listed.stem.removesuffix("-jars")
    if not resolved(ivy, package):
        print(f"peers: SKIPPED {skipped}: Maven Central did not give {name}", flush=True)
        return
    list_jars(listed, ivy)
    print(f"peers: {name} is ready", flush=True)


def resolved(ivy: Path, package: str, *without: str) -> bool:
    command = [sys.executable, "-c", RESOLVE_PACKAGE, package, str(ivy), *without]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=900)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True


def list_jars(listed: Path, ivy: Path) -> None:
    listed.write_text("\n".join(sorted(map(str, (ivy / "jars").glob("*.jar")))) + "\n", encoding="utf-8")


def hadoop_version() -> str:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.submodule_search_locations is not None
    (jar,) = Path(found.submodule_search_locations[0], "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def set_up_delta_spark() -> None:
    wanted = " ".join([PYSPARK, *RELEASES])
    if JARS.exists() and JARS.read_text(encoding="utf-8").startswith(wanted + "\n"):
        return
    print(f"peers: making .venv-peers with {PYSPARK}", flush=True)
    run([sys.executable, "-m", "venv", "--clear", str(VENV)])
    run([str(PYTHON), "-m", "pip", "install", "--quiet", PYSPARK])
    for release in RELEASES:
        run([str(PYTHON), "-m", "pip", "install", "--quiet", PYSPARK, release])
        jars = resolve(VENV / "ivy" / release)
        if jars:
            JARS.write_text("\n".join([wanted, *jars]) + "\n", encoding="utf-8")
            print(f"peers: {release} is ready", flush=True)
            return
        print(f"peers: Maven Central did not give the JARs of {release}", flush=True)
    print("peers: SKIPPED all tests and benchmarks beside Delta Spark", flush=True)


def resolve(ivy: Path) -> list[str]:
    try:
        subprocess.run([str(PYTHON), "-c", RESOLVE, str(ivy)], check=True, capture_output=True, timeout=300)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return []
    return sorted(str(jar) for jar in (ivy / "jars").glob("*.jar"))


def run(command: list[str]) -> None:
    if subprocess.run(command).returncode:
        sys.exit(f"peers: `{' '.join(command)}` failed; the reason is above.")


if __name__ == "__main__":
    main()
