"""A plan as it is printed before anything is done."""

import io

from rich.console import Console, RenderableType

from tasks.domain.facts import GpuFacts
from tasks.gpus.plan import Policy, Protection, plan_cleanup
from tasks.gpus.render import plan_table
from tests.gpus.test_plan import LEFTOVER, STRANGER


def printed(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_who_would_be_ended_and_who_is_in_the_way() -> None:
    plan = plan_cleanup([STRANGER, LEFTOVER], Policy.OWN, Protection(uid=1000))
    text = printed(plan_table("box", plan, (GpuFacts(0, "H100", "GPU-1", 81559, 60000),)))
    assert "box: policy own" in text
    assert "in the way" in text
    assert "4711" in text
    assert "left by our run night-1/abc/1/" in text
    assert "0: 60000" in text


def test_nobody_is_one_line() -> None:
    plan = plan_cleanup([], Policy.ALL, Protection(uid=0))
    assert printed(plan_table("box", plan, ())) == (
        "box: nobody holds the GPUs, and nothing of ours is left there.\n"
    )
