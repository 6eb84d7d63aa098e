"""One attempt: it carries its own diagnosis, and a script that starts the same server again."""

import json
import os
import subprocess
from dataclasses import replace

import pytest

from tasks.domain.configuration import ServerConfiguration
from tasks.domain.diagnosis import Action, Diagnosis, Doctor, Phase
from tasks.domain.facts import StackFacts, StackReport
from tasks.failures.diagnosis import diagnosis_of
from tasks.failures.fatal import fatal_line
from tasks.failures.nodes import blame
from tasks.server.attempt import make_attempt
from tasks.server.order import LaunchOrder
from tests.server.conftest import WHAT, Bed, fault

DOCTOR = Doctor(blame, fatal_line, diagnosis_of)
DUMP = "import json, os, sys; print(json.dumps([sys.argv, dict(os.environ)]), flush=True)"


def stack_of(interpreter: str, *flags: str) -> StackReport:
    facts = StackFacts(interpreter, "3.11", "linux", (), flags=frozenset(flags))
    return StackReport("simulated", interpreter, "fingerprint", facts, ())


def order(bed: Bed, configuration: ServerConfiguration, *flags: str) -> LaunchOrder:
    return LaunchOrder(
        configuration=configuration,
        stack=stack_of(bed.host.settings.stacks[0], *flags),
        remedies=(),
        trial_id=configuration.digest,
        number=1,
        repeat=1,
        mark=bed.mark(),
        what=WHAT,
    )


async def test_an_attempt_that_serves(bed: Bed):
    bed.scenario('sglang_version = "0.5.23"\n')
    configuration = ServerConfiguration(bed.model, {"tp": 8, "cuda_graph_max_bs": 64}, {"X": "1"})
    asked = order(bed, configuration, "cuda_graph_max_bs_decode", "tp_size")
    attempt = (await make_attempt(asked, bed.site, DOCTOR)).attempt
    assert attempt.diagnosis is None
    assert attempt.ready_s is not None
    assert "--cuda-graph-max-bs-decode" in attempt.command
    assert "--tp-size" in attempt.command
    assert attempt.env == {**bed.host.settings.env, "X": "1"}
    assert attempt.folder == bed.host.launch_folder(asked.mark)
    assert attempt.spells[0].doing == "start"
    assert attempt.spells[-1].doing == "serving"
    assert sum(s.seconds for s in attempt.spells) == pytest.approx(attempt.ready_s, abs=0.2)


async def test_an_attempt_that_fails_carries_its_diagnosis(bed: Bed):
    bed.scenario(fault("cudnn-check"))
    configuration = ServerConfiguration(bed.model, {"tp": 8})
    failed = (await make_attempt(order(bed, configuration), bed.site, DOCTOR)).attempt
    assert failed.diagnosis is not None
    assert failed.diagnosis.mode == "cudnn-conv3d-check"
    assert (failed.exit_code, failed.ready_s) == (1, None)
    assert sum(spell.seconds for spell in failed.spells) > 0
    remedy = failed.diagnosis.remedy
    assert remedy is not None
    cured = replace(configuration, env=dict(remedy.env))
    assert (await make_attempt(order(bed, cured), bed.site, DOCTOR)).attempt.diagnosis is None


async def test_a_port_is_avoided_where_the_order_says_so(bed: Bed):
    first = await bed.host.free_port()
    asked = replace(order(bed, ServerConfiguration(bed.model, {"tp": 8})), avoid_ports=(first,))
    launched = await make_attempt(asked, bed.site, DOCTOR)
    assert launched.launch.port != first
    assert launched.attempt.diagnosis is None


async def test_a_failure_that_nobody_can_explain_is_unknown(bed: Bed):
    def healthy(_: object) -> tuple[int, Diagnosis | None]:
        return 0, None

    bed.scenario(fault("silent-kill"))
    asked = order(bed, ServerConfiguration(bed.model, {"tp": 8}))
    failed = (
        await make_attempt(asked, bed.site, Doctor(healthy, fatal_line, diagnosis_of))
    ).attempt
    assert failed.diagnosis == Diagnosis(
        "unknown",
        Phase.WEIGHTS,
        Action.PRUNE,
        "the process ended with exit status -9; the log shows no known cause. "
        "Read server.log of this attempt.",
    )


def dumped_by_script(path: str) -> tuple[list[str], dict[str, str]]:
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["/bin/sh", path], capture_output=True, check=True, env=env)
    argv, variables = json.loads(done.stdout)
    return argv, variables


@pytest.fixture
def nasty() -> ServerConfiguration:
    args = {"tp": 8, "text": "it's $HOME\nand `id`", "template": "~/chat.jinja", "on": True}
    return ServerConfiguration("~/models/a b", args, {"A": "x y'z", "CUDA_HOME": "~/cuda"})


async def test_the_script_of_an_attempt_starts_the_same_server(
    bed: Bed, nasty: ServerConfiguration
):
    """Argv and variables, the host's own among them, are those of the launch itself."""
    bed.host.settings = bed.host.settings.model_copy(update={"launch": ("-c", DUMP)})
    launched = await make_attempt(order(bed, nasty), bed.site, DOCTOR)
    log = await bed.host.read(f"{launched.launch.folder}/server.log")
    argv, env = json.loads(log)
    home = bed.host.identity.home
    assert argv[1:5] == ["--model-path", f"{home}/models/a b", "--tp", "8"]
    assert argv[5:8] == ["--text", "it's $HOME\nand `id`", "--template"]
    assert argv[8:10] == [f"{home}/chat.jinja", "--on"]
    assert (env["A"], env["CUDA_HOME"]) == ("x y'z", f"{home}/cuda")
    again_argv, again_env = dumped_by_script(f"{launched.launch.folder}/cmd.sh")
    assert again_argv == argv
    given = {*nasty.env, *bed.host.settings.env}
    assert {name: again_env[name] for name in given} == {name: env[name] for name in given}
