"""A host that is this machine, with pretend devices and an nvidia-smi that prints a file."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.hosts.connect import connect
from tasks.hosts.host import Host

GPU_LINE = "{index}, NVIDIA H100 80GB HBM3, GPU-2b1f{index}, 81559, {used_mib}, 570.133.20, 9.0\n"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    return tmp_path / "dev" / "nvidia0"


@pytest.fixture
def memory(tmp_path: Path) -> Callable[..., None]:
    """Set the MiB taken on each pretend GPU; a number a GPU."""

    def take(*used_mib: int) -> None:
        lines = [GPU_LINE.format(index=i, used_mib=used) for i, used in enumerate(used_mib)]
        (tmp_path / "gpus.new").write_text("".join(lines))
        (tmp_path / "gpus.new").rename(tmp_path / "gpus.csv")

    return take


@pytest.fixture
def settings(tmp_path: Path, device: Path, memory: Callable[..., None]) -> HostSettings:
    memory(4)
    script = (
        f'case "$1" in *compute-apps*) cat {tmp_path}/apps.csv ;; *) cat {tmp_path}/gpus.csv; esac'
    )
    return HostSettings(
        run_folder=str(tmp_path / "run"),
        devices=str(tmp_path / "dev" / "nvidia*"),
        nvidia_smi=("sh", "-c", script, "nvidia-smi"),
    )


@pytest.fixture
async def shared(settings: HostSettings) -> AsyncIterator[Host]:
    """A host where others work too."""
    async with connect("shared", settings) as host:
        yield host


@pytest.fixture
async def dedicated(settings: HostSettings) -> AsyncIterator[Host]:
    """A host where nobody else works."""
    ours = settings.model_copy(update={"dedicated": True})
    async with connect("dedicated", ours) as host:
        yield host
