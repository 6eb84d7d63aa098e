"""Gather the facts of a software stack: a program that the stack's own interpreter runs.

Standard library alone, Python 3.8 and up, read from standard input, its request as JSON in the
first argument, its answer as JSON in the last line of its output. Each import is tried in a
process of its own, since it may crash, hang, or change what the next one sees. Whatever an import
starts is ended before this program is.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from importlib import metadata
from typing import IO, Any, Callable, Iterator  # noqa: UP035 - Python 3.8 on the host

Json = Any

MISSING_LIBRARY = re.compile(r"(lib[\w.+-]+?\.so)[\d.]*: cannot open shared object")
VARIABLES = re.compile(
    r"(SGLANG(?!_SWEEP)|SGL|NCCL|CUDA|TRITON|FLASHINFER|TORCH|PYTORCH|HF|TRANSFORMERS|DG|DEEPGEMM)_|"
    r"(LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|CONDA_PREFIX|XDG_CACHE_HOME)$"
)
SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Job:
    """Something tried in a process of its own: a function whose value is kept, or a program."""

    def __init__(
        self,
        name: str,
        timeout_s: float,
        function: Callable[[], Json] | None = None,
        argv: list[str] | None = None,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.function = function
        self.argv = argv
        self.out = nameless_file()
        self.err = nameless_file()
        self.pid = 0
        self.started = 0.0
        self.outcome: dict[str, Json] = {}

    def start(self) -> None:
        """Fork, and in the child never return."""
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._run()
            finally:
                os._exit(71)

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(self.err.fileno(), 2)
        os.dup2(self.out.fileno() if self.argv else nowhere, 1)
        if self.argv:
            os.execvpe(self.argv[0], self.argv, {**os.environ, "COLUMNS": "100000"})
        if self.function:
            mine = os.getpid()
            answer = answer_of(self.function)
            # An import that forked comes back twice.
            if os.getpid() == mine:
                self.out.write(json.dumps(answer).encode())
                self.out.flush()
            os._exit(0)

    def finish(self, status: int | None) -> None:
        """Keep how it ended; None is a time-out."""
        seconds = round(time.monotonic() - self.started, 3)
        # os.waitstatus_to_exitcode came with Python 3.9.
        code = status and (os.WEXITSTATUS(status) or -os.WTERMSIG(status))
        self.outcome = {"code": code, "seconds": seconds, "stderr": whole(self.err)[-4000:]}
        text = whole(self.out)
        if self.argv:
            self.outcome["stdout"] = text
        elif code == 0 and text:
            self.outcome.update(json.loads(text))


def answer_of(function: Callable[[], Json]) -> Json:
    """The function's value with the seconds that it took, or what it raised and why."""
    started = time.monotonic()
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - an import may raise anything, SystemExit too
        return {"error": told(error)}
    return {"value": value, "import_s": round(time.monotonic() - started, 3)}


def told(error: BaseException | None) -> str:
    """An exception and what it came from, the outermost first."""
    lines: list[str] = []
    while error is not None and len(lines) < 8:
        lines.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return "\n".join(lines)[:8000]


def nameless_file() -> IO[bytes]:
    """A file that leaves no trace: in memory where the system can, so that a full disk is none."""
    try:
        return os.fdopen(os.memfd_create("probe"), "w+b")
    except (AttributeError, OSError):
        return tempfile.TemporaryFile()


def whole(file: IO[bytes]) -> str:
    """Everything that was written to a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


def run_jobs(jobs: list[Job], at_once: int) -> None:
    """Run all, so many at once; one that exceeds its time is ended with all that it started."""
    waiting = list(jobs)
    running: dict[int, Job] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            job.start()
            running[job.pid] = job
        for pid, status in reaped():
            if pid in running:
                running.pop(pid).finish(status)
        for job in list(running.values()):
            if time.monotonic() - job.started > job.timeout_s:
                kill_all([*descendants(job.pid), job.pid])
                running.pop(job.pid).finish(None)
        time.sleep(0.01)


def reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended, also the orphans that fell to us."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def descendants(ancestor: int) -> list[int]:
    """Every process below another one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", errors="replace") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found, generation = [], {ancestor}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += sorted(generation)
    return found


def kill_all(pids: list[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def end_descendants() -> None:
    """Leave nothing behind: as a subreaper we are the parent of whatever was orphaned."""
    deadline = time.monotonic() + 5
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        kill_all(left)
        list(reaped())
        time.sleep(0.01)


def try_import(name: str) -> Json:
    """Import a module; what it says its version is, where it lies, and torch's own facts."""
    module = importlib.import_module(name)
    version = getattr(module, "__version__", None)
    value = {"version": version and str(version), "origin": getattr(module, "__file__", None)}
    return {**value, "torch": torch_facts(module)} if name == "torch" else value


def torch_facts(torch: Json) -> dict[str, Json]:
    """What torch was built with and sees; no GPU memory is taken."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    questions: dict[str, Callable[[], Json]] = {
        "version": lambda: str(torch.__version__),
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: torch.version.hip,
        "cudnn": lambda: torch.backends.cudnn.version(),
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),
        "cxx11_abi": lambda: bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        "arch_list": lambda: torch.cuda.get_arch_list() or torch._C._cuda_getArchFlags().split(),
        "device_count": lambda: torch.cuda.device_count(),
    }
    return {name: attempt(question) for name, question in questions.items()}


def attempt(question: Callable[[], Json]) -> Json:
    """An answer, or None: a build without CUDA lacks half of these, each in its own way."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - the question is foreign code
        return None


def ask_driver() -> Json:
    """What the driver's library serves, without a context on any GPU."""
    cuda = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return {"cuda": version.value, "status": int(cuda.cuInit(0))}


def installed() -> dict[str, str]:
    """Every wheel and its version."""
    return {wheel.metadata["Name"]: wheel.version for wheel in metadata.distributions()}


def find(name: str) -> str | None:
    """Where a module would be imported from, without importing it; None where it isn't there."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or "namespace package"


def cache_path(request: Json, wheels: dict[str, str]) -> str:
    """Where the launch options are remembered: anew whenever something of the stack changes."""
    source = os.path.join(os.path.dirname(find("sglang") or "/"), "srt", "server_args.py")
    changed = os.stat(source).st_mtime if os.path.exists(source) else 0
    key = [sys.version, sys.prefix, request["launch"], request["variables"], changed, wheels]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return os.path.join(request["folder"], "stack-cache", f"help-{digest}.json")


def recall(path: str) -> Json:
    """What was remembered, or None."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def remember(path: str, content: Json) -> None:
    """Keep an answer, whole or not at all; a disk that is full is no reason to fail."""
    beside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(beside, "w") as file:
            json.dump(content, file)
        os.rename(beside, path)
    except OSError:
        return


def variables() -> dict[str, str]:
    """The variables that shape a stack, without secrets."""
    kept = {name: value for name, value in os.environ.items() if VARIABLES.match(name)}
    return {name: value for name, value in sorted(kept.items()) if not SECRET.search(name)}


def toolkit() -> str:
    """The CUDA toolkit's folder, as torch and flashinfer look for it."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc, usual = shutil.which("nvcc"), "/usr/local/cuda"
    if named or nvcc is None:
        return named or (usual if os.path.isdir(usual) else "")
    return os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))


def tool_jobs(timeout_s: float) -> list[Job]:
    """Ask nvcc, and each ptxas that a variable names, for its release."""
    nvcc = f"{toolkit()}/bin/nvcc"
    tools = {"nvcc": nvcc} if os.path.exists(nvcc) else {}
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        if os.environ.get(name):
            tools[name] = os.environ[name]
    return [
        Job(f"tool {name}", timeout_s, argv=[path, "--version"]) for name, path in tools.items()
    ]


def libraries(text: str) -> dict[str, list[str]]:
    """Where the shared libraries that were missed lie, in whatever version."""
    places = [f"{path}/nvidia/*/lib" for path in sys.path if path]
    places += [f"{toolkit()}/lib64", "/usr/local/cuda*/lib64", "/usr/lib/*-linux-gnu", "/usr/lib64"]
    return {
        stem: sorted({path for place in places for path in glob.glob(f"{place}/{stem}*")})[:8]
        for stem in sorted(set(MISSING_LIBRARY.findall(text)))
    }


def space(path: str) -> tuple[int, int] | None:
    """Bytes in all and free for us on the file system of a path, or of its nearest parent."""
    while not os.path.exists(path) and path not in ("/", ""):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path or "/")
    except OSError:
        return None
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def system_name() -> str:
    """The operating system as it calls itself, and the kernel."""
    try:
        with open("/etc/os-release") as file:
            match = re.search(r'^PRETTY_NAME="?([^"\n]*)', file.read(), re.MULTILINE)
    except OSError:
        match = None
    return f"{match.group(1) if match else platform.system()}, {platform.release()}"


def system_facts(request: Json) -> Json:
    """The machine below the interpreter."""
    return {
        "glibc": (attempt(lambda: os.confstr("CS_GNU_LIBC_VERSION")) or "").replace("glibc ", ""),
        "shm": space("/dev/shm"),
        "disk": space(request["folder"]),
        "cuda_home": toolkit(),
        "paths": {p: os.path.exists(os.path.expanduser(p)) for p in request["paths"]},
    }


def gather(request: Json) -> Json:
    """Try everything and put the answer together."""
    wheels = installed()
    remembered = cache_path(request, wheels)
    help_text = recall(remembered)
    limit_s = request["timeout_s"]
    present = [name for name in request["imports"] if find(name) is not None]
    asked = [request["interpreter"], *request["launch"], "--help"]
    jobs = [] if help_text else [Job("help", request["help_timeout_s"], argv=asked)]
    jobs += [Job(name, limit_s, function=partial(try_import, name)) for name in present]
    jobs += [Job("driver", limit_s, function=ask_driver), *tool_jobs(limit_s)]
    run_jobs(jobs, max(2, min(len(os.sched_getaffinity(0)), request["at_once"])))
    outcomes = {job.name: job.outcome for job in jobs}
    if not help_text:
        help_text = outcomes["help"]
        if help_text["code"] == 0:
            remember(remembered, help_text)
    failures = "\n".join(str(o.get("error", "")) + o["stderr"] for o in outcomes.values())
    return {
        "executable": sys.executable,
        "python": platform.python_version(),
        "platform": system_name(),
        "wheels": wheels,
        "requires": attempt(lambda: metadata.requires("sglang")) or [],
        "imports": {name: outcomes[name] for name in present},
        "driver": outcomes["driver"],
        "tools": {n[5:]: o["stdout"] for n, o in outcomes.items() if n[:5] == "tool "},
        "help": help_text,
        "env": variables(),
        "libraries": libraries(failures),
        "system": system_facts(request),
    }


def main() -> None:
    """Answer the request, and leave no process behind."""
    request = json.loads(sys.argv[1])
    os.chdir("/")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        answer = gather(request)
    finally:
        end_descendants()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
