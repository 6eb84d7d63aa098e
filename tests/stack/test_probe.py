"""The probe run for real, on environments that are broken in every way one can build here."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from settings.host import Host as HostSettings
from tasks.domain.facts import PackageFacts, StackFacts
from tasks.hosts.connect import connect
from tasks.hosts.host import Host
from tasks.stack.checks import check_stack
from tasks.stack.gather import gather_facts
from tests.hosts.processes import alive, oldest_python, pid_in, wait_for
from tests.stack.pretend import Environment, compile_shared, make_environment

SYMBOL = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


async def facts_of(host: Host) -> StackFacts:
    return await gather_facts(host, host.settings.stacks[0], None)


def package(facts: StackFacts, name: str) -> PackageFacts:
    found = facts.package(name)
    assert found is not None, f"{name} is not in the facts: {facts.error}"
    return found


def modes(facts: StackFacts) -> set[str | None]:
    return {finding.mode for finding in check_stack(facts, None)}


async def test_an_empty_environment(host: Host) -> None:
    facts = await facts_of(host)
    assert facts.error == ""
    assert facts.python_version.startswith("3.")
    assert not any(found.imported for found in facts.packages)
    assert facts.system.glibc.startswith("2.")
    assert facts.system.disk_free_bytes
    assert "sglang" in facts.flags_error


async def test_versions_origins_and_launch_options(host: Host, broken: Environment) -> None:
    broken.sglang()
    origin = broken.module("sgl_kernel", "__version__ = '1'\n")
    broken.wheel("sglang-kernel", "0.4.9")
    broken.module("torch", "__version__ = '2.9.1+cpu'\nclass version: cuda = None\n")
    facts = await facts_of(host)
    assert package(facts, "sgl_kernel") == PackageFacts(
        "sgl_kernel", "0.4.9", True, package(facts, "sgl_kernel").import_s, None, str(origin)
    )
    assert facts.torch["version"] == "2.9.1+cpu"
    assert facts.flags == {
        "help", "model_path", "model", "tp_size", "tensor_parallel_size", "attention_backend",
    }  # fmt: skip
    assert facts.pins == {"torch": "2.9.1", "flashinfer-python": "0.6.3"}


async def test_wheels_of_versions_that_do_not_belong_together(
    host: Host, broken: Environment
) -> None:
    broken.sglang()
    broken.wheel("flashinfer-python", "0.6.1", "torch<2.9")
    broken.wheel("flashinfer-cubin", "0.5.3")
    broken.wheel("torch", "2.9.1+cu130")
    found = {(f.severity.value, f.mode) for f in check_stack(await facts_of(host), None)}
    assert found >= {
        ("warning", "flashinfer-below-minimum"),
        ("warning", "flashinfer-version-mismatch-minor"),
        ("warning", "abi-undefined-symbol"),
    }


async def test_the_launcher_is_asked_once_until_the_stack_changes(
    host: Host, broken: Environment
) -> None:
    broken.sglang()
    runs = broken.site / "sglang" / "runs"
    first, second = await facts_of(host), await facts_of(host)
    assert (runs.read_text(), second.options) == (".", first.options)
    broken.wheel("torch", "2.9.1")
    await facts_of(host)
    assert runs.read_text() == ".."


async def test_a_launcher_that_fails_is_not_remembered(host: Host, broken: Environment) -> None:
    broken.sglang()
    launcher = broken.site / "sglang" / "launch_server.py"
    whole = launcher.read_text()
    launcher.write_text("import no_such_module\n")
    facts = await facts_of(host)
    assert facts.flags_error == "ModuleNotFoundError: No module named 'no_such_module'"
    launcher.write_text(whole)
    assert (await facts_of(host)).flags


@needs_gcc
async def test_an_extension_with_an_undefined_symbol(host: Host, broken: Environment) -> None:
    broken.module("sgl_kernel", "from sgl_kernel import common_ops\n")
    broken.extension("sgl_kernel", "common_ops", f"{SYMBOL}();", f"void {SYMBOL}(void);")
    facts = await facts_of(host)
    error = package(facts, "sgl_kernel").error or ""
    assert error.startswith("ImportError: ")
    assert error.endswith(f"common_ops.abi3.so: undefined symbol: {SYMBOL}")
    assert "abi-undefined-symbol" in modes(facts)


@needs_gcc
@pytest.mark.parametrize("lies", ["nowhere", "in the environment", "in another version"])
async def test_an_extension_whose_library_is_not_found(
    host: Host, broken: Environment, tmp_path: Path, lies: str
) -> None:
    source = tmp_path / "lib.c"
    source.write_text("int answer(void) { return 42; }\n")
    library = tmp_path / "libpretend.so.12"
    compile_shared(source, library, "-Wl,-soname,libpretend.so.12")
    broken.module("sgl_kernel", "from sgl_kernel import common_ops\n")
    broken.extension("sgl_kernel", "common_ops", "answer();", "int answer(void);", str(library))
    folder = broken.site / "nvidia" / "pretend" / "lib"
    folder.mkdir(parents=True)
    if lies == "in the environment":
        library.rename(folder / library.name)
    elif lies == "in another version":
        library.rename(folder / "libpretend.so.13")
    else:
        library.unlink()
    facts = await facts_of(host)
    (finding,) = [f for f in check_stack(facts, None) if f.summary.startswith("sgl_kernel")]
    assert "libpretend.so.12: cannot open shared object file" in finding.evidence
    expected = {
        "nowhere": ("shared-lib-not-on-path", "install libpretend.so.12"),
        "in the environment": ("shared-lib-not-on-path", f"put {folder} on LD_LIBRARY_PATH"),
        "in another version": ("shared-lib-missing-wrong-major", "install the build for"),
    }[lies]
    assert finding.mode == expected[0]
    assert finding.fix.startswith(expected[1])


async def test_a_sitecustomize_that_raises(host: Host, broken: Environment) -> None:
    (broken.site / "sitecustomize.py").write_text("raise RuntimeError('NCCL moved')\n")
    broken.module("sgl_kernel", "")
    facts = await facts_of(host)
    assert "RuntimeError: NCCL moved" in facts.startup
    assert package(facts, "sgl_kernel").imported
    (finding,) = [f for f in check_stack(facts, None) if "sitecustomize raises" in f.summary]
    assert finding.severity.value == "warning"


async def test_a_sitecustomize_that_leaves(host: Host, broken: Environment) -> None:
    (broken.site / "sitecustomize.py").write_text("import os; os._exit(3)\n")
    facts = await facts_of(host)
    assert facts.error == "no answer"


async def test_imports_that_crash_leave_shout_or_wound_the_others(
    host: Host, broken: Environment
) -> None:
    broken.module("torch", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n")
    broken.module("triton", "raise SystemExit(4)\n")
    broken.module("transformers", "print('{' * 100_000)\n__version__ = '4'\n")
    broken.module("flashinfer", "import sys; sys.modules['sgl_kernel'] = None\n")
    broken.module("sgl_kernel", "")
    broken.module(
        "deep_gemm", "try:\n    import nothing\nexcept ImportError:\n    raise ValueError\n"
    )
    facts = await facts_of(host)
    assert package(facts, "torch").error == "died of SIGSEGV"
    assert package(facts, "triton").error == "SystemExit: 4"
    assert package(facts, "transformers").version == "4"
    assert package(facts, "sgl_kernel").imported
    assert package(facts, "deep_gemm").error == "ModuleNotFoundError: No module named 'nothing'"


async def test_what_hangs_and_what_it_started_is_ended(
    host: Host, broken: Environment, tmp_path: Path
) -> None:
    tell = "import os, time\ndef tell(name): open(f'{}/' + name, 'w').write(str(os.getpid()))\n"
    tell = tell.format(tmp_path)
    broken.module("torch", tell + "tell('hung')\nif os.fork() == 0: tell('child')\ntime.sleep(999)")
    daemon = "tell('daemon'); os.setsid(); time.sleep(999)\n"
    broken.module("triton", tell + f"if os.fork() == 0:\n    if os.fork() == 0:\n        {daemon}")
    started = time.monotonic()
    facts = await gather_facts(host, str(broken.python), None, import_timeout_s=0.6)
    assert time.monotonic() - started < 5
    assert package(facts, "triton").imported
    assert package(facts, "torch").error == "did not finish in time"
    for name in ("hung", "child", "daemon"):
        assert not alive(pid_in(tmp_path / name)), name


async def test_cancellation_leaves_no_process(
    host: Host, broken: Environment, tmp_path: Path
) -> None:
    program = f"import os, time; os.setsid(); open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n"
    broken.module("torch", program + "time.sleep(999)\n")
    gathering = asyncio.create_task(facts_of(host))
    pid = await asyncio.to_thread(pid_in, tmp_path / "pid")
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    wait_for(lambda: not alive(pid), "the end of the import")


@pytest.mark.parametrize(
    ("stack", "said"),
    [("/no/such/python", "No such file"), ("true", "no answer"), ("false", "no answer")],
)
async def test_what_is_no_interpreter(host: Host, stack: str, said: str) -> None:
    facts = await gather_facts(host, stack, None)
    assert said in facts.error
    assert [finding.severity.value for finding in check_stack(facts, None)] == ["error"]


async def test_variables_are_told_but_no_secrets(host: Host) -> None:
    env = {
        "SGLANG_X": "1",
        "NCCL_ALGO": "Ring",
        "HF_TOKEN": "secret",
        "OTHER": "1",
        "HF_HOME": "/h",
    }
    settings = host.settings.model_copy(update={"env": {**host.settings.env, **env}})
    async with connect("here", settings) as here:
        told = (await facts_of(here)).env
    assert (told["SGLANG_X"], told["NCCL_ALGO"], told["HF_HOME"]) == ("1", "Ring", "/h")
    assert not {"HF_TOKEN", "OTHER", "SGLANG_SWEEP_MARK"} & told.keys()


async def test_the_folder_that_we_stand_in_lends_no_module(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = 'wrong'\n")
    monkeypatch.chdir(tmp_path)
    assert not package(await facts_of(host), "torch").imported


async def test_it_runs_on_python_3_8(tmp_path: Path) -> None:
    python = oldest_python()
    if python is None:
        pytest.skip("there is no working python3.8 on this machine")
    old = make_environment(tmp_path / "old", python)
    old.sglang()
    settings = HostSettings(run_folder=str(tmp_path / "run"), env={"PYTHONPATH": ""})
    async with connect("here", settings) as host:
        facts = await gather_facts(host, str(old.python), None)
    assert facts.python_version.startswith("3.8.")
    assert package(facts, "sglang").imported
    assert "tp_size" in facts.flags
