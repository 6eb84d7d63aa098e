"""The sweep's environment in a stack's sitecustomize: written, kept, refused, taken out again."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.errors import HostError
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.block import BACKUP
from tasks.stack.persist import persist, unpersist

ENV = {"NCCL_ALGO": "Ring", "NCCL_BUFFSIZE": "16777216", "ODD": 'it\'s "quoted"\\ \n# <<<'}
OWN = "import os\nos.environ['MINE'] = '1'\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment."""
    folder = tmp_path_factory.mktemp("stack")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python3"


class Custom:
    """A stack's sitecustomize, if it has one, and what lies beside it."""

    def __init__(self, packages: Path) -> None:
        self.path = packages / "sitecustomize.py"
        self.backup = packages / f"sitecustomize.py{BACKUP}"

    def read(self) -> str | None:
        return self.path.read_bytes().decode(errors="surrogateescape") if self.exists() else None

    def write(self, text: str) -> None:
        self.path.write_bytes(text.encode(errors="surrogateescape"))

    def exists(self) -> bool:
        return self.path.exists()

    def files(self) -> list[str]:
        return sorted(found.name for found in self.path.parent.glob("sitecustomize.py*"))


@pytest.fixture
def custom(stack: Path) -> Iterator[Custom]:
    (packages,) = stack.parents[1].glob("lib/python3*/site-packages")
    yield Custom(packages)
    for left in packages.glob("sitecustomize.py*"):
        left.unlink()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with connect("here", HostSettings(run_folder=str(tmp_path / "run"))) as reached:
        yield reached


def seen_by(stack: Path, name: str, **env: str) -> str:
    """What a process of the interpreter has as a variable."""
    program = f"import os; print(os.environ.get({name!r}), end='')"
    command = [str(stack), "-c", program]
    inherited = {key: value for key, value in os.environ.items() if key not in ENV}
    done = subprocess.run(command, env={**inherited, **env}, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


async def test_every_process_has_it_and_its_own_environment_is_stronger(
    host: Host, stack: Path, custom: Custom
) -> None:
    done = await persist(host, str(stack), ENV)
    assert (done.done, os.path.basename(done.path)) == ("written", "sitecustomize.py")
    assert {name: seen_by(stack, name) for name in ENV} == ENV
    assert seen_by(stack, "NCCL_ALGO", NCCL_ALGO="Tree") == "Tree"


async def test_once_is_enough_and_another_sweep_s_takes_its_place(
    host: Host, stack: Path, custom: Custom
) -> None:
    await persist(host, str(stack), ENV)
    first = custom.read()
    assert (await persist(host, str(stack), ENV)).done == "unchanged"
    assert custom.read() == first
    assert (await persist(host, str(stack), {"NCCL_PROTO": "LL"})).done == "written"
    assert (seen_by(stack, "NCCL_ALGO"), seen_by(stack, "NCCL_PROTO")) == ("None", "LL")


async def test_what_was_changed_meanwhile_stays(host: Host, stack: Path, custom: Custom) -> None:
    custom.write(OWN)
    os.chmod(custom.path, 0o640)
    await persist(host, str(stack), ENV)
    assert custom.files() == ["sitecustomize.py", f"sitecustomize.py{BACKUP}"]
    assert (seen_by(stack, "MINE"), seen_by(stack, "NCCL_ALGO")) == ("1", "Ring")
    custom.write(f"{custom.read()}os.environ['LATER'] = '2'\n")
    assert (await unpersist(host, str(stack))).done == "removed"
    assert custom.read() == OWN + "os.environ['LATER'] = '2'\n"
    assert os.stat(custom.path).st_mode & 0o777 == 0o640
    assert len(custom.files()) == 2, "the backup isn't what is left, so it stays"


@pytest.mark.parametrize("own", [None, OWN, OWN.rstrip("\n"), "", '"""Words."""\r\n'])
async def test_written_and_taken_out_leaves_no_trace(
    host: Host, stack: Path, custom: Custom, own: str | None
) -> None:
    if own is not None:
        custom.write(own)
    await persist(host, str(stack), ENV)
    assert (await unpersist(host, str(stack))).done == "removed"
    assert custom.read() == own
    assert custom.files() == ([] if own is None else ["sitecustomize.py"])
    assert (await unpersist(host, str(stack))).done == "absent"


@pytest.mark.parametrize(
    ("own", "fault"),
    [
        ("import os\nif True\n", "can't be read as Python"),
        ("# \udcff\n", "can't be read as Python"),
        ("import os\nos.environ['NCCL_ALGO'] = 'Tree'\n", "it sets NCCL_ALGO otherwise itself"),
        ("raise RuntimeError('broken before us')\n", "Python doesn't start with it"),
        ("import sys\nsys.exit(3)\n", "can't change its sitecustomize"),
    ],
)
async def test_a_file_that_would_not_work_is_left_as_it_was(
    host: Host, stack: Path, custom: Custom, own: str, fault: str
) -> None:
    custom.write(own)
    with pytest.raises(HostError, match=fault):
        await persist(host, str(stack), ENV)
    assert custom.read() == own
    assert custom.files() == ["sitecustomize.py"]


async def test_a_block_that_was_changed_by_hand_is_not_touched(
    host: Host, stack: Path, custom: Custom
) -> None:
    await persist(host, str(stack), ENV)
    changed = str(custom.read()).replace("Ring", "Tree")
    custom.write(changed)
    for act in (persist(host, str(stack), {"A": "1"}), unpersist(host, str(stack))):
        with pytest.raises(HostError, match="was changed by hand; take it out yourself"):
            await act
    assert custom.read() == changed


async def test_a_file_that_other_environments_load_is_not_touched(
    host: Host, stack: Path, tmp_path: Path
) -> None:
    shared = Custom(tmp_path)
    shared.write(OWN)
    path = {"PYTHONPATH": str(tmp_path)}
    settings = host.settings.model_copy(update={"env": path})
    async with connect("here", settings) as reached:
        with pytest.raises(HostError, match="is loaded by other environments, too"):
            await persist(reached, str(stack), ENV)
    assert shared.read() == OWN


async def test_no_python_at_all_is_told(host: Host) -> None:
    with pytest.raises(HostError, match="can't run /no/such/python"):
        await persist(host, "/no/such/python", ENV)
    with pytest.raises(HostError, match="can't change its sitecustomize"):
        await persist(host, "/bin/false", ENV)
