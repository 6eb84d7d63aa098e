"""A plan as it is printed before anything is done."""

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from tasks.domain.facts import GpuFacts
from tasks.domain.nvidia_smi import GpuApp
from tasks.gpus.clean import Sight
from tasks.gpus.plan import Policy, Protection, plan_cleanup
from tasks.gpus.render import held, plan_view, since
from tests.gpus.test_plan import LEFTOVER, STRANGER

GPUS = (GpuFacts(0, "H100", "GPU-1", 81559, 60000),)


def printed(view: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_who_would_be_ended_and_who_is_in_the_way(width: int) -> None:
    seen = replace(STRANGER, memory_mib=59512.0, container="lxc 129")
    plan = plan_cleanup([seen, LEFTOVER], Policy.OWN, Protection(uid=1000))
    text = printed(plan_view("box", plan, Sight((seen, LEFTOVER), GPUS)), width)
    assert "box: policy own" in text
    assert "end: left by our run night-1/abc/1/" in text
    assert "in the way: belongs to alice, and we are not root" in text
    (line,) = (line for line in text.splitlines() if line.strip().startswith("4711"))
    assert line.startswith("  4711  alice  00:00 (2 h)  59512  lxc 129  0 ctl uvm  python3 train")
    assert "0: 60000" in text


def test_whom_only_the_driver_sees_is_shown_with_the_reason() -> None:
    plan = plan_cleanup([], Policy.ALL, Protection(uid=0))
    sight = Sight((), GPUS, (GpuApp(31337, "python3", 59512.0),))
    text = " ".join(printed(plan_view("box", plan, sight, nested=True)).split())
    assert "the driver names pid 31337 (python3) with 59512 MiB, of outside this container" in text


def test_nobody_is_one_line() -> None:
    plan = plan_cleanup([], Policy.ALL, Protection(uid=0))
    assert printed(plan_view("box", plan, Sight((), None))) == (
        "box: nobody holds the GPUs, and nothing of ours runs there.\n"
    )


def test_a_start_on_another_day_has_its_date() -> None:
    noon = replace(STRANGER, started_at=1_767_355_200.0)
    assert since(replace(noon, age_s=3600.0)) == "12:00 (1 h)"
    assert since(replace(noon, age_s=86_400.0)) == "01-02 12:00 (1 d)"


def test_device_files_in_short() -> None:
    files = ["nvidia0", "nvidia1", "nvidia2", "nvidia7", "nvidiactl", "nvidia-uvm"]
    assert held([f"/dev/{name}" for name in files]) == "0-2,7 ctl uvm"
    assert held([]) == ""
