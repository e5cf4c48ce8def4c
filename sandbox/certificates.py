"""The sandbox's own certificate authority: one serving certificate, and a client certificate for each user."""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.layout import write_private

LIFETIME = timedelta(days=365)
# A clock that is set back a little must not make a fresh certificate "not yet valid".
BACKDATED = timedelta(hours=1)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta = LIFETIME
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """A certificate authority in a folder: ``ca.crt`` and ``ca.key``, made at the first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate_file = folder / "ca.crt"
        key_file = folder / "ca.key"
        if not self.certificate_file.exists():
            self._create(key_file)
        self._certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        self._key = cast(ec.EllipticCurvePrivateKey, key)

    def _create(self, key_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("ack-sandbox-ca")
        certificate = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(True, False, False, False, False, True, True, False, False),
                critical=True,
            )
            .sign(key, hashes.SHA256())
        )
        write_private(key_file, _pem(key))
        write_private(self.certificate_file, certificate.public_bytes(serialization.Encoding.PEM).decode())

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[str], lifetime: timedelta = LIFETIME
    ) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [usage] if not names else [usage, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem(key)

    def serving(self, stem: str, names: Sequence[str]) -> tuple[Path, Path]:
        """A certificate for a server that also talks to its peers (etcd does), as ``<stem>.crt`` and ``<stem>.key``."""
        return self._store(stem, *self._issue(_name(stem), ExtendedKeyUsageOID.SERVER_AUTH, names))

    def client(self, stem: str, common_name: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate that says who a client is, as ``<stem>.crt`` and ``<stem>.key``."""
        return self._store(stem, *self.client_pem(common_name, groups))

    def client_pem(
        self, common_name: str, groups: Sequence[str] = (), lifetime: timedelta = LIFETIME
    ) -> tuple[str, str]:
        return self._issue(_name(common_name, groups), ExtendedKeyUsageOID.CLIENT_AUTH, (), lifetime)

    def _store(self, stem: str, certificate: str, key: str) -> tuple[Path, Path]:
        paths = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        write_private(paths[0], certificate)
        write_private(paths[1], key)
        return paths

    def kubeconfig(self, path: Path, server: str, user: str, groups: Sequence[str]) -> None:
        """Write a kubeconfig (0600) that carries its certificates, so that it works wherever it is copied to."""
        write_private(path, self.kubeconfig_text(server, user, groups))

    def kubeconfig_text(self, server: str, user: str, groups: Sequence[str], lifetime: timedelta = LIFETIME) -> str:
        """A kubeconfig whose client certificate is valid for ``lifetime`` from now on."""
        certificate, key = self.client_pem(user, groups, lifetime)
        cluster = {"server": server, "certificate-authority-data": _encoded(self.certificate_file.read_text())}
        credentials = {"client-certificate-data": _encoded(certificate), "client-key-data": _encoded(key)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
            "current-context": "sandbox",
        }
        return json.dumps(document, indent=1) + "\n"


def signing_key(folder: Path, stem: str) -> None:
    """The pair that signs service account tokens (``<stem>.key``) and verifies them (``<stem>.pub``)."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(folder / f"{stem}.key", _pem(key))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(folder / f"{stem}.pub", public.decode())


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
