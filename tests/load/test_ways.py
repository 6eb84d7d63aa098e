"""The ways to a server: TLS, IPv6, a key, further fields."""

import asyncio
import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from settings.workload import Workload
from tasks.domain.measurement import RequestOutcome, Validity
from tasks.load.run import run_level
from tasks.load.target import Level, Target
from tests.load.streaming_server import Behaviour, StreamingServer

WORKLOAD = Workload(name="w", input_len=16, output_len=12, concurrency=[3], requests=9)


async def load(url: str, what: Workload = WORKLOAD, **target):
    return await run_level(
        Target(url, **target), what, Level(concurrency=3), seed=1, repeat=0, processes=1
    )


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that nobody but itself vouches for, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "load test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + built.public_bytes(serialization.Encoding.PEM)
    )
    return path


def serving(certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize("backend", ["sglang", "openai", "openai-chat"])
async def test_https_works_and_says_whose_clock_it_was(backend, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with StreamingServer(Behaviour(ttft_s=0.01), tls=serving(certificate)) as server:
        result = await load(server.url, backend=backend)
    assert result.metrics["completed"] == 9
    assert result.metrics["total_output_tokens"] == 9 * 12
    assert result.client["timestamps"] == "clock"
    assert result.client["cache_flushed"] == 1
    assert server.connections <= 3 + 1 + 3  # slots, warm-up, the questions besides


async def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    async with StreamingServer(tls=serving(certificate)) as server:
        result = await load(server.url)
    assert result.verdict.validity is Validity.INVALID
    assert {r.outcome for r in result.records} == {RequestOutcome.REFUSED}
    assert {r.error for r in result.records} == {"TLS: self-signed certificate"}


async def test_https_to_a_server_that_speaks_http_is_refused():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\nInvalid HTTP request received.")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        result = await load(f"https://127.0.0.1:{port}")
    assert {r.outcome for r in result.records} == {RequestOutcome.REFUSED}
    assert {r.error.partition(":")[0] for r in result.records} == {"TLS"}


async def test_ipv6():
    async with StreamingServer(address="::1") as server:
        result = await load(server.url)
    assert result.metrics["completed"] == 9
    assert result.client["timestamps"] == "kernel"
    assert server.generations[0].headers["host"] == f"[::1]:{server.port}"


async def test_key_and_further_fields_go_with_every_request():
    what = WORKLOAD.model_copy(update={"extra": {"priority": 3, "stop": ["x"]}})
    async with StreamingServer() as server:
        await load(server.url, what, api_key="s3cret")
    assert {g.headers["authorization"] for g in server.generations} == {"Bearer s3cret"}
    assert all((g.body["priority"], g.body["stop"]) == (3, ["x"]) for g in server.generations)
