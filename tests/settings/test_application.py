"""Where settings come from, which source wins, and that secrets stay secret."""

from pathlib import Path

import pytest

from settings.application import load
from settings.invalid import InvalidSettings

SECRET = "s3cret-4711"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and an environment without settings."""
    import os

    for name in [name for name in os.environ if name.upper().startswith("SGLANG_SWEEP_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    (home / ".config" / "sglang-sweep").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def faults(work: Path) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load(work)
    return str(caught.value)


def test_defaults(work: Path):
    settings, origin = load(work)
    assert (settings.store, settings.lease, settings.lock_wait) == ("sweeps", 60.0, None)
    assert origin.of(("store",)) == "default"
    assert settings.host("local").launch == ("-m", "sglang.launch_server")


def test_environment_over_dotenv_over_toml_value_by_value(
    work: Path, monkeypatch: pytest.MonkeyPatch
):
    (work / "sglang-sweep.toml").write_text(
        'store = "toml"\nlease = "1m"\nlock_wait = "1h"\n'
        '[hosts.box]\naddress = "toml"\nport = 1\nstacks = ["a", "b"]\n'
    )
    (work / ".env").write_text(
        "SGLANG_SWEEP_STORE=dotenv\nSGLANG_SWEEP_LEASE=2m\nSGLANG_SWEEP_HOSTS__BOX__PORT=2\n"
    )
    monkeypatch.setenv("SGLANG_SWEEP_STORE", "environment")
    settings, origin = load(work)
    assert (settings.store, settings.lease, settings.lock_wait) == ("environment", 120.0, 3600.0)
    assert settings.hosts["box"].port == 2
    assert settings.hosts["box"].stacks == ("a", "b")
    toml = str(work / "sglang-sweep.toml")
    paths = ("store",), ("lease",), ("lock_wait",), ("hosts", "box", "port")
    assert [origin.of(path) for path in paths] == ["environment", ".env", toml, ".env"]
    assert origin.of(("hosts", "box", "address")) == toml
    assert origin.of(("hosts", "box", "devices")) == "default"


def test_which_toml_file_is_in_force(
    work: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (home / ".config/sglang-sweep/config.toml").write_text('store = "home"')
    assert load(work)[0].store == "home"
    (work / "sglang-sweep.toml").write_text('store = "work"')
    assert load(work)[0].store == "work"
    (tmp_path / "named.toml").write_text('store = "named"')
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", str(tmp_path / "named.toml"))
    assert load(work)[0].store == "named"
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", "~/.config/sglang-sweep/config.toml")
    assert load(work)[0].store == "home"
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", "")
    assert load(work)[0].store == "work"


def test_the_dotenv_file_may_name_the_toml_file(work: Path, tmp_path: Path):
    (work / "named.toml").write_text('store = "named"')
    (work / ".env").write_text("SGLANG_SWEEP_CONFIG=named.toml\n")
    assert load(work)[0].store == "named"


@pytest.mark.parametrize("named", ["/nowhere/x.toml", "~nobody-of-that-name/x.toml", "."])
def test_a_named_file_that_is_none(work: Path, monkeypatch: pytest.MonkeyPatch, named: str):
    monkeypatch.setenv("SGLANG_SWEEP_CONFIG", named)
    assert faults(work) == f"SGLANG_SWEEP_CONFIG: {named!r} is not a file"


def test_a_dotenv_file_is_shared_with_other_programs(work: Path):
    (work / ".env").write_text(f"HF_TOKEN={SECRET}\nPATH=/x\nSTORE=theirs\nDEBUG\n")
    assert load(work)[0].store == "sweeps"


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        (
            "SGLANG_SWEEP_STOER",
            "x",
            "{place}: SGLANG_SWEEP_STOER: no such setting; did you mean 'STORE'?",
        ),
        (
            "SGLANG_SWEEP_HOSTS__BOX__ADRESS",
            "x",
            "settings: hosts.box.adress: no such key; did you mean 'address'? [from {place}]",
        ),
        (
            "SGLANG_SWEEP_HOSTS__BOX__PORT",
            "x",
            "settings: hosts.box.port: 'x' is not valid: input should be a valid integer, "
            "unable to parse string as an integer [from {place}]",
        ),
        (
            "SGLANG_SWEEP_HOSTS",
            f"{{box: {SECRET}",
            "{place}: SGLANG_SWEEP_HOSTS: not JSON; "
            'write a list as ["a", "b"], a table as {{"a": 1}}',
        ),
        (
            "SGLANG_SWEEP_HOSTS__BOX__STACKS",
            "python3",
            "{place}: SGLANG_SWEEP_HOSTS__BOX__STACKS: not JSON; "
            'write a list as ["a", "b"], a table as {{"a": 1}}',
        ),
        (
            "SGLANG_SWEEP_LEASE",
            "soon",
            "settings: lease: 'soon': expected a duration such as 90s, 15m, 6h or 1h30m "
            "[from {place}]",
        ),
    ],
)
@pytest.mark.parametrize("place", ["environment", ".env"])
def test_a_variable_that_is_wrong(
    work: Path, monkeypatch: pytest.MonkeyPatch, place: str, variable: str, value: str, line: str
):
    if place == "environment":
        monkeypatch.setenv(variable, value)
    else:
        (work / ".env").write_text(f"{variable}={value}\n")
    assert faults(work) == line.format(place=place)


@pytest.mark.parametrize(
    ("toml", "lines"),
    [
        ("stroe = 1", ["settings: stroe: no such key; did you mean 'store'? [from {toml}]"]),
        ("x = \n", ["{toml}: not readable as TOML: Invalid value (at line 1, column 5)"]),
        (
            'lease = inf\nlock_wait = "never"\nstore = 1',
            [
                "settings: store: 1 is not valid: input should be a valid string [from {toml}]",
                "settings: lease: inf: expected a duration such as 90s, 15m, 6h or 1h30m "
                "[from {toml}]",
                "settings: lock_wait: 'never': expected a duration such as 90s, 15m, 6h or 1h30m "
                "[from {toml}]",
            ],
        ),
        (
            '[hosts.box]\nstacks = "py"\nlaunch = []\nport = 0\n[hosts.box.env]\nB = ["s3cret"]',
            [
                "settings: hosts.box.stacks: 'py' is not valid: input should be a valid list "
                "[from {toml}]",
                "settings: hosts.box.launch: [] is not valid: "
                "list should have at least 1 item, not 0 [from {toml}]",
                "settings: hosts.box.env.B: expected text or a number, not a list [from {toml}]",
                "settings: hosts.box.port: 0 is not valid: "
                "input should be greater than or equal to 1 [from {toml}]",
            ],
        ),
        (
            '[hosts]\nbox = "gpu"',
            [
                "settings: hosts.box: 'gpu' is not valid: expected keys such as address, "
                "passphrase, connect_timeout, reconnect_patience, tunnel, server_address, peers, "
                "cluster_address, prefix, stacks, launch, devices, dedicated, never_end, "
                "run_folder, nvidia_smi, env, port "
                "[from {toml}]"
            ],
        ),
        (
            '[hosts."²"]\nadress = "x"',
            ["settings: hosts.².adress: no such key; did you mean 'address'? [from {toml}]"],
        ),
    ],
)
def test_a_toml_file_that_is_wrong(work: Path, toml: str, lines: list[str]):
    path = work / "sglang-sweep.toml"
    path.write_text(toml, encoding="utf-8")
    assert faults(work).splitlines() == [line.format(toml=path) for line in lines]


@pytest.mark.parametrize("name", ["sglang-sweep.toml", ".env"])
def test_a_settings_file_that_is_no_text(work: Path, name: str):
    (work / name).write_bytes(b"\xff\xfe\x00")
    assert faults(work).startswith(f"{work / name}: not readable")
    (work / name).unlink()
    (work / name).mkdir()
    assert load(work)[0].store == "sweeps"


@pytest.mark.parametrize("value", [f'"{SECRET}"', "4711", f'["{SECRET}"]', f'{{a = "{SECRET}"}}'])
def test_a_secret_is_never_shown(work: Path, value: str):
    (work / "sglang-sweep.toml").write_text(f"api_key = {value}\n")
    try:
        settings, _ = load(work)
    except InvalidSettings as error:
        shown = str(error)
        assert "api_key: (hidden) is not valid: input should be a valid string" in shown
    else:
        shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
        assert settings.api_key is not None
        assert settings.api_key.get_secret_value() == SECRET
    assert "4711" not in shown


def test_numbers_and_switches_of_a_host_s_variables_are_text(work: Path):
    (work / "sglang-sweep.toml").write_text("[hosts.box.env]\nA = 1\nB = true\nC = 1.5\nD = 'x'\n")
    host = load(work)[0].host("box")
    assert host.env == {"A": "1", "B": "true", "C": "1.5", "D": "x"}


def test_a_host_that_is_not_configured(work: Path):
    (work / "sglang-sweep.toml").write_text("[hosts.blackwell]\n[hosts.hopper]\n")
    settings, _ = load(work)
    with pytest.raises(InvalidSettings) as caught:
        settings.host("blackwel")
    assert str(caught.value) == (
        "host: 'blackwel' is not configured; did you mean 'blackwell'? "
        "(a [hosts.blackwel] table would define it)"
    )
    with pytest.raises(InvalidSettings, match="there are blackwell, hopper, local"):
        settings.host("ampere-9")
