"""A service with a certificate."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lakeseal.errors import StorageError
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store
from lakeseal.testing.managed_tables import append, create


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "owner")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_a_certificate_is_checked_and_one_of_ones_own_can_be_trusted(
    start, certificate: tuple[Path, Path], table: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    service = start(*options, certificate=certificate[0])
    assert service.url.startswith("https://")
    token = service.token("writer")
    stranger = HttpOwner(service.url, token=token)
    with pytest.raises(StorageError, match="is not trusted"):
        stranger.get_commits(table.uri)
    stranger.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    log, managed = create(table, service.owner(token))
    assert append(log, managed, "a").version == 1
