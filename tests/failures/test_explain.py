import json
from dataclasses import replace

from tasks.domain.configuration import Attempt
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
    assert "`mem_fraction_static` times 1.08" in page
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
