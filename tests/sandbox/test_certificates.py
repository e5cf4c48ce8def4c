"""The sandbox's own certificate authority."""

from __future__ import annotations

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from sandbox.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _attributes(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]


def test_a_client_certificate_names_the_user_and_its_groups(authority: Authority) -> None:
    pem, _ = authority.client_pem("alice", ["team-a", "team-b"])
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert _attributes(certificate, NameOID.COMMON_NAME) == ["alice"]
    assert _attributes(certificate, NameOID.ORGANIZATION_NAME) == ["team-a", "team-b"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_file.read_bytes()))


def test_a_certificate_is_valid_now_and_on_a_clock_that_is_some_minutes_late(authority: Authority) -> None:
    pem, _ = authority.client_pem("alice")
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=30)
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=300)


def test_a_serving_certificate_holds_names_and_addresses(authority: Authority) -> None:
    path, _ = authority.serving("serving", ["127.0.0.1", "localhost"])
    names = (
        x509.load_pem_x509_certificate(path.read_bytes()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    ).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_the_authority_of_a_folder_is_the_same_at_the_next_use(authority: Authority) -> None:
    before = authority.certificate_file.read_bytes()
    again = Authority(authority.folder)
    assert again.certificate_file.read_bytes() == before
    pem, _ = again.client_pem("bob")
    x509.load_pem_x509_certificate(pem.encode()).verify_directly_issued_by(x509.load_pem_x509_certificate(before))


def test_keys_and_kubeconfigs_are_for_this_user_alone(authority: Authority, tmp_path: Path) -> None:
    authority.serving("serving", ["127.0.0.1"])
    authority.client("client", "client")
    authority.kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", "alice", [])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 7
    assert set(modes.values()) == {0o600}


def test_a_kubeconfig_carries_its_certificates_so_that_it_works_anywhere(authority: Authority, tmp_path: Path) -> None:
    authority.kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", "alice", ["team-a"])
    document = json.loads((tmp_path / "kubeconfig").read_text())
    data = document["users"][0]["user"]["client-certificate-data"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(data))
    assert _attributes(certificate, NameOID.COMMON_NAME) == ["alice"]
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
