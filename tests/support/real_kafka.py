"""A broker of Kafka itself, where `make peers` has set one up: one node that is broker and controller. It also listens
where only TLS and a password let one in."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from confluent_kafka.admin import AdminClient

from lakeseal.cli.java import find_java
from support.certificates import self_signed

JARS = Path(__file__).resolve().parents[2] / ".venv-peers" / "kafka-jars.txt"
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={module} required user_reader="{password}";
ssl.keystore.type=PEM
ssl.keystore.location={place}/keystore.pem
log.dirs={place}/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, kw_only=True)
class RealKafka:
    address: str
    secured: str
    """Where it wants TLS, and the user `reader` with the password."""
    certificate: Path
    password: str


def is_there() -> bool:
    return JARS.exists() and find_java() is not None


@contextmanager
def real_kafka(place: Path) -> Iterator[RealKafka]:
    """A broker that runs meanwhile, with its files in this directory."""
    java = find_java()
    assert java is not None
    port, secured, controller = _free_port(), _free_port(), _free_port()
    certificate, key = self_signed(place)
    (place / "keystore.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    password = uuid.uuid4().hex
    settings = place / "server.properties"
    ports = {"port": port, "secured": secured, "controller": controller}
    settings.write_text(_SETTINGS.format(**ports, place=place, module=_LOGIN, password=password))
    # What Kafka shares with Spark is not fetched again.
    jars = [*JARS.read_text().split(), str(Path(pyspark.__file__).parent / "jars" / "*")]
    command = [str(java.home / "bin" / "java"), "-Xmx512m", "-cp", os.pathsep.join(jars)]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run(format, check=True, capture_output=True, timeout=60)
    with (place / "broker.log").open("wb") as log:
        broker = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        address = f"127.0.0.1:{port}"
        _until_it_answers(address, broker, place / "broker.log")
        yield RealKafka(address=address, secured=f"127.0.0.1:{secured}", certificate=certificate, password=password)
    finally:
        broker.kill()
        broker.wait()


def _until_it_answers(address: str, broker: subprocess.Popen[bytes], log: Path) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    deadline = time.monotonic() + 60
    while True:
        assert broker.poll() is None, log.read_text()[-4000:]
        try:
            admin.list_topics(timeout=2)
            return
        except Exception:
            assert time.monotonic() < deadline, "the broker does not answer"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
