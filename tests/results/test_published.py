"""A sweep's tables on a real S3 server, that of moto, over a real socket."""

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import polars as pl
import pytest
from moto.server import ThreadedMotoServer

from tasks.domain.errors import InputError
from tasks.results.exchange.published import NotPublished, publish
from tasks.results.folders import SweepFolder
from tasks.results.records import SCHEMA_VERSION
from tasks.results.saving import save_gpu, save_trial
from tasks.results.store import create_sweep
from tasks.results.tables import LAYOUT
from tests.results import factory
from tests.results.factory import NIGHT


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on loopback, with one bucket."""
    serving = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    serving.start()
    host, port = serving.get_host_and_port()
    url = f"http://{host}:{port}"
    urlopen(Request(f"{url}/nights", method="PUT")).close()
    yield url
    serving.stop()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment that leads there."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    return "s3://nights/sweeps"


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = create_sweep(tmp_path / "store", factory.sweep(), now=NIGHT)
    level = factory.level(1_200, records=tuple(factory.record(i) for i in range(3)))
    save_trial(folder, factory.measured(factory.trial(), levels=(level,)))
    return folder


def test_what_is_published_is_read_there_as_it_is_here(folder: SweepFolder, s3: str):
    assert publish(folder, s3) == (2, ())
    there = pl.read_parquet(f"{s3}/*/trials/*/requests.parquet")
    here = pl.read_parquet(f"{folder.path}/trials/*/requests.parquet")
    assert there.equals(here)
    summary = f"{s3}/{folder.sweep_id}/summary.parquet"
    assert pl.read_parquet(summary)["output_throughput"].to_list() == [1_200.0]
    assert pl.read_parquet_metadata(summary)[LAYOUT] == str(SCHEMA_VERSION)


def test_a_missing_bucket_is_named_with_the_way_out(folder: SweepFolder, s3: str):
    with pytest.raises(NotPublished) as caught:
        publish(folder, "s3://nowhere/sweeps")
    said = str(caught.value)
    assert "NoSuchBucket" in said
    assert "is there a bucket 'nowhere'" in said
    assert "AWS_ACCESS_KEY_ID" in said
    assert "\n" not in said


def test_a_folder_will_do_and_damage_is_named(folder: SweepFolder, tmp_path: Path):
    save_gpu(folder, factory.trial().trial_id, 1, ())
    next(folder.trials.glob("*/requests.parquet")).write_bytes(b"PAR1")
    count, warnings = publish(folder, str(tmp_path / "out"))
    assert count == 1
    assert "requests.parquet: damaged, left out" in warnings[0]
    assert (tmp_path / "out" / folder.sweep_id / "summary.parquet").exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [("ftp://x/y", "no storage that is known; there are s3://"), ("s3:///y", "names no bucket")],
)
def test_another_target_is_refused(folder: SweepFolder, target: str, said: str):
    with pytest.raises(InputError, match=said):
        publish(folder, target)
