import json
from dataclasses import replace

from tasks.domain.configuration import Attempt, PeerCommand
from tasks.domain.diagnosis import Cleanup, Remedy
from tasks.domain.facts import GpuFacts
from tasks.failures.diagnosis import diagnose
from tasks.failures.explain import Surroundings, as_json, changes, failure_page

LOG = "\n" * 41 + "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
ATTEMPT = Attempt(
    number=2,
    repeat=1,
    command=(
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m x",
        "--trust",
        "--tp",
        "8",
    ),
    env={"NCCL_ALGO": "Ring", "A": "1"},
    stack="~/ml-env/bin/python3",
    started_at=0.0,
    remedies=(Remedy("switch the cuDNN check off"),),
    exit_code=-9,
    diagnosis=diagnose(LOG, -9),
    folder="/data/run/1",
)


def test_the_page_has_cause_evidence_cure_and_command():
    page = failure_page(ATTEMPT)
    assert page.startswith("# kv-alloc-not-enough-memory\n")
    assert "42  RuntimeError: Not enough memory." in page
    assert "`--mem-fraction-static` times 1.08" in page
    assert "- switch the cuDNN check off: " in page
    assert "A=1 \\\n  NCCL_ALGO=Ring \\\n  python3" in page
    assert "--model-path '/m x' \\\n" in page
    assert "/data/run/1/server.log" in page
    assert "## GPUs" not in page


def test_the_page_shows_what_else_is_known():
    around = Surroundings(
        log="\x1b[91mred\x1b[0m\n```\nend",
        good_env={"NCCL_ALGO": "Tree", "A": "1"},
        gpus=(GpuFacts(0, "H200", "u", 143_771, 1_234),),
    )
    page = failure_page(ATTEMPT, around)
    assert "-NCCL_ALGO=Tree\n+NCCL_ALGO=Ring" in page
    assert "| 0 | H200 | 1,234 of 143,771 MiB |" in page
    assert "````text\nred\n```\nend\n````" in page


def test_nothing_that_decides_is_cut_off_or_drowned():
    """A page of the UI shows 80 characters in a row, and a log's bars have a hundred states."""
    log = "x" * 90 + "\n" * 3 + "\r 1%|#|\r50%|#####|\n\nRuntimeError: " + "word " * 40 + "end\n"
    wide = replace(ATTEMPT, diagnosis=diagnose(log, 1))
    gpus = [GpuFacts(index, "H200", "u", 143_771, 4) for index in range(8)]
    page = failure_page(wide, Surroundings(log=log, gpus=gpus))
    evidence = page.partition("## Evidence")[2].partition("## Cure")[0]
    assert max(map(len, evidence.splitlines())) < 80
    assert "word end" in evidence
    assert "| 0, 1, 2, 3, 4, 5, 6, 7 | H200 | 4 of 143,771 MiB |" in page
    assert "Its last 3 lines:" in page
    assert "50%|#####|\n" in page
    assert " 1%|#|" not in page


def test_a_remedy_that_was_in_force_is_not_promised_again():
    assert ATTEMPT.diagnosis is not None
    assert ATTEMPT.diagnosis.remedy is not None
    page = failure_page(replace(ATTEMPT, remedies=(ATTEMPT.diagnosis.remedy,)))
    assert "It came back in spite of what cures it most often." in page
    assert page.count("times 1.08") == 1, "only in what was in force"


def test_the_page_of_a_server_over_two_hosts_has_both_commands():
    assert ATTEMPT.diagnosis is not None
    peer = PeerCommand("node-b", ("python3", "-m", "sglang.launch_server"), {"B": "2"})
    at_peer = replace(ATTEMPT, peers=(peer,), diagnosis=replace(ATTEMPT.diagnosis, node=1))
    page = failure_page(at_peer)
    assert "| node | 1 on node-b |" in page
    assert "On node-b:\n\n```sh\nB=2 \\\n  python3" in page


def test_the_exit_status_is_named_where_it_is_a_signal():
    for code, told in ((-9, "-9 (SIGKILL)"), (137, "137 (SIGKILL)"), (1, "1"), (None, "none, it")):
        assert f"| exit code | {told}" in failure_page(replace(ATTEMPT, exit_code=code))


def test_the_page_says_whether_the_host_has_what_the_remedy_requires():
    diagnosis = diagnose("Cannot access gated repo for url https://huggingface.co/org/m\n", 1)
    gated = replace(ATTEMPT, diagnosis=diagnosis)
    assert "Checked on the host: the cache holds" in failure_page(gated, Surroundings(unmet=()))
    lacking = failure_page(gated, Surroundings(unmet=("no whole snapshot of org/m",)))
    assert "**It can't be done here**: no whole snapshot of org/m." in lacking
    assert "It helps where this holds" in failure_page(gated)


def test_a_secret_is_not_shown():
    secret = replace(ATTEMPT, env={"HF_TOKEN": "hf_abc"})
    page = failure_page(secret, Surroundings(good_env={"HF_TOKEN": "hf_old"}))
    assert 'HF_TOKEN="$HF_TOKEN"' in page
    assert "-HF_TOKEN=(hidden)\n+HF_TOKEN=(hidden)" in page
    assert "hf_" not in page


def test_a_page_without_a_diagnosis():
    assert "didn't fail" in failure_page(replace(ATTEMPT, diagnosis=None))


def test_the_json_of_a_failure_has_every_field():
    data = json.loads(json.dumps(as_json(ATTEMPT.diagnosis)))
    assert data["failure"] == "kv-alloc-not-enough-memory"
    assert data["action"] == "retry"
    assert data["remedy"]["scale_args"] == {"mem_fraction_static": 1.08}
    assert [evidence["line"] for evidence in data["evidence"]] == [42]
    assert data["evidence"][0]["text"].startswith("RuntimeError: Not enough memory.")
    assert data["explanation"]


def test_the_json_of_a_healthy_log():
    data = as_json(None)
    assert data["failure"] is None
    assert data["action"] is None
    assert data["evidence"] == []


def test_changes_reads_as_a_person_would_type_it():
    remedy = Remedy(
        "all",
        env={"A": "1"},
        args={"off": True, "value": 3, "gone": None},
        cleanup=(Cleanup.SHARED_MEMORY,),
        another_port=True,
        wait_s=5.0,
    )
    assert changes(remedy) == (
        "`A=1`, `--off`, `--value 3`, no `--gone`, clean up shared memory, another port, wait 5 s"
    )
    assert changes(Remedy("again")) == "nothing, it is only repeated"
