"""What an interpreter does before it runs anything: it hangs, raises, or sets variables."""

import time
from dataclasses import replace

from tasks.domain.facts import Severity, StackFacts
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gather import gather_facts
from tests.hosts.processes import alive, pid_in
from tests.stack.factory import SOUND, sweep
from tests.stack.pretend import Environment

SETS = "import os\nos.environ['NCCL_ALGO'] = 'Ring'\nos.environ.setdefault('NCCL_PROTO', 'LL')\n"


async def test_an_interpreter_that_hangs_is_known_at_once_and_ended(
    host: Host, broken: Environment
) -> None:
    pid_file = broken.folder / "pid"
    custom = broken.site / "sitecustomize.py"
    custom.write_text(
        f"import os, sys, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(999)\n"
    )
    started = time.monotonic()
    facts = await gather_facts(host, str(broken.python), None, liveness_timeout_s=0.5)
    assert time.monotonic() - started < 10
    assert facts.error.startswith("it hangs: no answer to an empty program")
    assert str(custom) in facts.error
    assert not alive(pid_in(pid_file))
    (finding,) = check_stack(facts, None)
    assert (finding.severity, finding.mode) == (Severity.ERROR, "startup-timeout-slow-import")
    assert "start-up files" in finding.fix


async def test_what_sitecustomize_sets(host: Host, broken: Environment) -> None:
    (broken.site / "sitecustomize.py").write_text(SETS)
    env = {**host.settings.env, "NCCL_ALGO": "Tree"}
    async with connect("here", host.settings.model_copy(update={"env": env})) as here:
        facts = await gather_facts(here, str(broken.python), None)
    assert facts.startup_files == {"sitecustomize": str(broken.site / "sitecustomize.py")}
    assert facts.startup_sets == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert facts.startup_forced == ("NCCL_ALGO",)
    assert facts.env["NCCL_ALGO"] == "Ring"


SET = replace(
    SOUND,
    env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    startup_files={"sitecustomize": "/v/sitecustomize.py"},
    startup_sets={"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    startup_forced=("NCCL_ALGO",),
)


def overridden(facts: StackFacts, **changes: object) -> list[str]:
    found = check_stack(facts, sweep(**changes))
    return [f.summary for f in found if f.severity is Severity.WARNING]


def test_a_sweep_that_asks_for_another_value_than_sitecustomize_forces() -> None:
    served = {"model_path": "/models/kimi", "env": {"NCCL_ALGO": "Tree"}}
    (summary,) = overridden(SET, server=served)
    assert summary.startswith("server.env.NCCL_ALGO: /v/sitecustomize.py sets NCCL_ALGO to 'Ring'")
    (summary,) = overridden(SET, axes={"env.NCCL_ALGO": ["Ring", "Tree"]})
    assert summary.startswith("axes.env.NCCL_ALGO: ")
    channels = replace(
        SET, startup_forced=("NCCL_MIN_NCHANNELS",), startup_sets={"NCCL_MIN_NCHANNELS": "16"}
    )
    (summary,) = overridden(channels, axes={"nccl_channels": [8, 16]})
    assert summary.startswith("axes.nccl_channels: ")


def test_a_value_that_is_only_a_default_or_the_same_is_no_contradiction() -> None:
    assert overridden(SET, axes={"env.NCCL_PROTO": ["LL", "Simple"]}) == []
    same = {"model_path": "/models/kimi", "env": {"NCCL_ALGO": "Ring"}}
    assert overridden(SET, server=same) == []


def test_what_is_set_is_told() -> None:
    (finding,) = check_stack(SET, None)
    assert finding.severity is Severity.INFO
    assert finding.evidence == "NCCL_ALGO=Ring, NCCL_PROTO=LL"
