"""The command line as a person meets it: what is wrong is said in a line, and nothing is slow."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.cli import run_command
from tasks.results.saving import save_trial
from tasks.results.store import create_sweep
from tests.results import factory

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).parent / "sglang-sweep")
KIMI = str(PROJECT / "examples" / "kimi-k2.5.yaml")
LOGS = PROJECT / "tests" / "failures" / "data" / "logs"
PORT_LOG = str(LOGS / "port-in-use-http.sglang-0.5.9.log")
DAY = 86_400.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, home and environment."""
    for name in [name for name in os.environ if name.upper().startswith("SGLANG_SWEEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nights(folder: Path) -> tuple[str, str]:
    """Two nights in the store; the second one was slower."""
    ids = []
    for day, share in enumerate((1.0, 0.8)):
        stored = create_sweep(folder / "sweeps", factory.sweep(), now=factory.NIGHT + day * DAY)
        base = factory.trial(baseline=True, cuda_graph_max_bs=64, speculative_steps=0)
        save_trial(stored, factory.measured(base, 1204.0 * share, 1196.0 * share))
        ids.append(stored.path.name)
    return ids[0], ids[1]


Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command line here; its exit status and what it said."""

    def run(*words: str) -> tuple[int, str, str]:
        status = run_command(list(words))
        said = capsys.readouterr()
        return int(status), said.out, said.err

    return run


def shell(command: str, **options: object) -> "subprocess.CompletedProcess[str]":
    bash = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(bash, capture_output=True, text=True, check=False, timeout=30, **options)  # type: ignore[call-overload]


def test_commands_that_need_no_flow_import_no_prefect(nights: tuple[str, str]):
    """And those that read no settings none of what reads them."""
    lines = [
        "--help",
        "plan --help",
        f"diagnose {PORT_LOG}",
        f"diagnose {PORT_LOG} --json",
        "settings",
        f"plan {KIMI}",
        f"plan {KIMI} --json",
        "report --json",
        f"compare {nights[0]} {nights[1]}",
        "history",
        "report",
        "--version",
    ]
    program = (
        "import io, json, sys\n"
        "from contextlib import redirect_stdout\n"
        "from flows.cli import run_command\n"
        "seen = []\n"
        "for words in json.load(sys.stdin):\n"
        "    with redirect_stdout(io.StringIO()):\n"
        "        status = run_command(words)\n"
        "    names = ('prefect', 'pydantic', 'polars')\n"
        "    seen.append([int(status), *(name for name in names if name in sys.modules)])\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([shlex.split(line) for line in lines]),
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = dict(zip(lines, json.loads(done.stdout), strict=True))
    light = lines[:4]
    assert {line: seen[line] for line in light} == {line: [0] for line in light}
    assert seen[f"plan {KIMI} --json"] == [0, "pydantic"]
    assert seen["report"][0] == 0
    assert all("prefect" not in names for names in seen.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], 'sglang-sweep: Unknown command "nosuch".'),
        (["[/x]"], 'sglang-sweep: Unknown command "[/x]".'),
        (["plan"], 'sglang-sweep: Command "plan" parameter --file requires an argument.'),
        (["plan", KIMI, "--nosuch"], "sglang-sweep: Unknown option: --nosuch."),
        (["plan", KIMI, "extra"], "sglang-sweep: Unused Tokens: ['extra']."),
        (["plan", "none.yaml"], "none.yaml: no such file"),
        (["plan", "."], ".: not readable: Is a directory"),
        (["plan", "[bold]x"], "[bold]x: no such file"),
        (["plan", KIMI, "--set", "search.repeats"], "--set: 'search.repeats': expected key=value"),
        (
            ["plan", KIMI, "--set", "search.repeats=[1"],
            "--set: 'search.repeats=[1': not valid YAML",
        ),
        (["plan", KIMI, "--set", "nmae=x"], f"{KIMI}: nmae: no such key; did you mean 'name'?"),
        (["diagnose"], 'sglang-sweep: Command "diagnose" parameter --log requires an argument.'),
        (["diagnose", "none.log"], "none.log: can't be read: No such file or directory"),
        (["diagnose", "."], ".: can't be read: Is a directory"),
        (["diagnose", PORT_LOG, "--exit-code", "x"], "sglang-sweep: Invalid value for --exit-code"),
        (["report"], "sweeps: no sweep in this store yet"),
        (["report", "--json"], "sweeps: no sweep in this store yet"),
        (["compare", "a", "b"], "sweeps: no sweep in this store yet"),
        (["compare", "a"], 'sglang-sweep: Command "compare" parameter --b requires an argument.'),
        (["history"], "sweeps: no sweep in this store yet"),
        (["history", "any"], "sweeps: no sweep in this store yet"),
        (["history", "--last", "0"], "history: --last: 0 is not at least 1"),
        (["history", "--last", "x"], "sglang-sweep: Invalid value for --last"),
        (["run"], "run: give a sweep file, or --resume with a sweep's id"),
        (["run", "none.yaml"], "none.yaml: no such file"),
        (["validate", "nosuch"], "host: 'nosuch' is not configured"),
        (["clean", "nosuch", "--dry-run"], "host: 'nosuch' is not configured"),
        (["clean", "--policy", "some"], 'sglang-sweep: Invalid value "some" for --policy.'),
        (["bench", "nonsense"], "base_url: 'nonsense' is not of the form http://host:port"),
        (["bench", "http://x:1", "--requests", "0"], "bench: requests: 0 is not valid"),
        (["bench", "http://x:1", "--slo", "ttft"], "--slo: 'ttft': say ttft=200"),
        (["bench", "http://x:1", "--extra", "[1]"], "--extra: '[1]' is not a JSON object"),
        (["bench", "http://x:1", "--dataset", "file"], "bench: file: missing; the dataset file"),
        (
            ["bench", "http://x:1", "--concurrency", "1", "--request-rate", "1"],
            "bench: give either concurrency or request_rate",
        ),
    ],
)
def test_wrong_input_is_one_line_and_status_2(tell: Told, words: list[str], said: str):
    status, out, err = tell(*words)
    assert (status, out) == (2, "")
    assert err.startswith(said), err
    assert err.count("\n") == 1, err


def test_every_fault_of_a_file_has_its_line(tell: Told, folder: Path):
    (folder / "x.yaml").write_text("nmae: x\nserver: {}\nworkloads: [{name: w}]\n" + "y: 1\n")
    status, out, err = tell("plan", "x.yaml")
    assert (status, out) == (2, "")
    assert [line.partition(": ")[2].partition(":")[0] for line in err.splitlines()] == [
        "name", "server.model_path", "workloads.0", "nmae", "y",
    ]  # fmt: skip


def test_wrong_settings_stop_every_command_that_reads_them(tell: Told, folder: Path):
    (folder / "sglang-sweep.toml").write_text('stroe = "x"\napi_key = 4711\n')
    for words in (["settings"], ["plan", KIMI], ["report"], ["history"], ["validate"], ["clean"]):
        status, out, err = tell(*words)
        assert (status, out) == (2, ""), words
        assert "stroe: no such key; did you mean 'store'?" in err
        assert len(err.splitlines()) == 2
        assert "4711" not in err


def test_help_and_version(tell: Told):
    status, out, _ = tell()
    assert (status, "Usage: sglang-sweep COMMAND" in out) == (0, True)
    commands = "demo plan run validate clean bench diagnose compare report history settings"
    assert all(f" {command} " in out for command in commands.split())
    assert tell("--help")[1] == out
    for command in commands.split():
        status, out, err = tell(command, "--help")
        assert (status, err) == (0, "")
        assert f"sglang-sweep {command}" in out
    assert tell("--version")[:2] == (0, "0.1.0\n")


def test_a_plan_for_machines(tell: Told):
    status, out, err = tell("plan", KIMI, "--json")
    plan = json.loads(out)
    assert (status, err) == (0, "")
    assert (plan["name"], plan["host"], plan["repeats"]) == ("kimi-k2.5-nightly", "blackwell", 2)
    assert plan["excluded"] == 32  # of 3 x 2 x 4 x 2 x 2 x 2 x 2, those with 256 and 5 steps
    assert len(plan["trials"]) == 384 - 32
    assert plan["launches"] == 2 * 352
    assert [trial["baseline"] for trial in plan["trials"]] == [True] + [False] * 351
    assert len({trial["trial_id"] for trial in plan["trials"]}) == 352
    for trial in plan["trials"][::25]:
        words = shlex.split(trial["command"])
        names = [word.partition("=")[0] for word in words[: len(trial["env"])]]
        assert names == list(trial["env"])
        assert words[len(names) :] == trial["argv"]


def test_a_plan_for_a_person(tell: Told, folder: Path):
    (folder / "sglang-sweep.toml").write_text(
        '[hosts.blackwell]\nlaunch = ["-m", "simulator.launch_server"]\nport = 41000\n'
        'stacks = ["~/env/bin/python3"]\nenv = {CUDA_HOME = "~/cuda", NCCL_ALGO = "Tree"}\n'
    )
    changes = ["--set", "axes={cuda_graph_max_bs: [64, 128]}", "--set", "exclude=[]"]
    changes += ["--set", "baseline={cuda_graph_max_bs: 128}"]
    status, out, err = tell("plan", KIMI, *changes)
    assert (status, err) == (0, "")
    heading, command, *_, total = out.splitlines()
    assert heading.split()[2:] == ["cuda_graph_max_bs=128", "(baseline)"]
    assert command.strip() == (
        "CUDA_HOME=~/cuda NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS "
        "NCCL_BUFFSIZE=16777216 NCCL_NTHREADS=512 ~/env/bin/python3 -m simulator.launch_server "
        "--model-path /shared/kimi-k2.5-int4 --tp 8 --trust-remote-code "
        "--disable-custom-all-reduce --cuda-graph-max-bs 128 --host 127.0.0.1 --port 41000"
    )
    assert total.startswith("2 trials on blackwell, 0 combinations excluded, 2 launch(es) each")
    elsewhere = tell("plan", KIMI, *changes, "--host", "[/red]")[1]
    assert "host '[/red]' is not configured yet: shown with defaults" in elsewhere


def test_a_diagnosis(tell: Told):
    status, out, err = tell("diagnose", PORT_LOG)
    assert (status, err) == (0, "")
    assert out.startswith("port-in-use-http in phase warmup\n")
    assert "action: retry: take another port\n" in out
    machine = json.loads(tell("diagnose", PORT_LOG, "--json")[1])
    assert (machine["failure"], machine["action"]) == ("port-in-use-http", "retry")
    healthy = str(LOGS / "healthy.sglang-0.5.9-stopped-when-idle.log")
    assert tell("diagnose", healthy) == (0, "healthy: no failure in this log\n", "")
    assert json.loads(tell("diagnose", healthy, "--json")[1])["failure"] is None


def test_a_diagnosis_reads_standard_input(tell: Told, monkeypatch: pytest.MonkeyPatch):
    for words in (["-"], ["-", "--json"], ["--json", "-"]):
        piped = io.TextIOWrapper(io.BytesIO(Path(PORT_LOG).read_bytes() + b"\xff\x00\n"))
        monkeypatch.setattr(sys, "stdin", piped)
        status, out, err = tell("diagnose", *words)
        assert (status, err) == (0, "")
        assert "port-in-use-http" in out


def test_an_exit_status_is_given_with_its_sign(tell: Told, folder: Path):
    (folder / "cut.log").write_text("[2026-11-30 06:37:24] Load weight begin. avail mem=20 GB\n")
    killed = json.loads(tell("diagnose", "cut.log", "--json", "--exit-code", "-9")[1])
    assert killed["failure"] is not None
    assert json.loads(tell("diagnose", "cut.log", "--json", "--exit-code=0")[1]) != killed


def test_settings_tell_where_each_value_comes_from_and_no_secret(
    tell: Told, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "sglang-sweep.toml").write_text(
        'lease = "1m"\napi_key = "s3cret"\n[hosts.box]\ndevices = "/dev/[a-z]*"\n'
        '[hosts.box.env]\nHF_TOKEN = "s3cret"\nNCCL_ALGO = "Ring"\n'
    )
    (folder / ".env").write_text("SGLANG_SWEEP_LOCK_WAIT=5s\n")
    monkeypatch.setenv("SGLANG_SWEEP_STORE", "/data")
    status, out, err = tell("settings", "--json")
    assert (status, err) == (0, "")
    rows = {row["setting"]: (row["value"], row["from"]) for row in json.loads(out)}
    toml = str(folder / "sglang-sweep.toml")
    assert rows["store"] == ("/data", "environment")
    assert rows["lock_wait"] == (5.0, ".env")
    assert rows["lease"] == (60.0, toml)
    assert rows["hosts.box.env.NCCL_ALGO"] == ("Ring", toml)
    assert rows["hosts.box.port"] == (30000, "default")
    table = tell("settings")[1]
    assert "/dev/[a-z]*" in table
    assert "s3cret" not in out + table


def test_reports_for_machines_are_json_alone(tell: Told, nights: tuple[str, str]):
    status, out, err = tell("report", nights[0], "--json")
    assert (status, err, json.loads(out)["sweep_id"]) == (0, "", nights[0])
    assert json.loads(tell("report", "--json")[1])["sweep_id"] == nights[1]
    status, out, err = tell("report", "20", "--json")
    assert (status, out) == (2, "")
    assert err.startswith("sweeps: '20' begins several sweeps")
    assert tell("report", "nosuch", "--json")[::2] == (
        2,
        f"sweeps: no sweep 'nosuch'; the newest is '{nights[1]}'\n",
    )


def test_a_regression_is_status_1(tell: Told, nights: tuple[str, str]):
    first, second = nights
    assert tell("compare", second, first)[0] == 1
    assert tell("compare", first, second)[0] == 0
    assert tell("compare", nights[0], "baseline")[0] == 0
    status, out, _ = tell("history", "kimi-k2.5-nightly")
    assert status == 0
    assert out.count("2026-1") == 2
    assert tell("history", "--last", "1")[1].count("2026-1") == 1
    hint = "did you mean 'kimi-k2.5-nightly'?"
    assert tell("history", "kimi-k2-nightly")[::2] == (
        2,
        f"sweeps: no sweep is named 'kimi-k2-nightly'; {hint}\n",
    )


@pytest.mark.parametrize("arguments", [f"plan {KIMI}", f"plan --json {KIMI}", "--help", "settings"])
def test_a_reader_that_goes_away_is_no_error(arguments: str):
    for reader in ("head -1", "true"):
        done = shell(f"{COMMAND} {arguments} | {reader}")
        assert (done.returncode, done.stderr) == (0, "")


def test_the_command_itself_from_anywhere(folder: Path):
    done = shell(f"{COMMAND} diagnose - --json < {PORT_LOG}")
    assert json.loads(done.stdout)["failure"] == "port-in-use-http"
    assert (done.returncode, done.stderr) == (0, "")
    wrong = shell(f"{COMMAND} plan {'x' * 120}.yaml")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"{'x' * 120}.yaml: no such file\n"
    closed = shell(f"{COMMAND} diagnose - <&-")
    assert (closed.returncode, closed.stderr) == (2, "-: there is no standard input\n")
