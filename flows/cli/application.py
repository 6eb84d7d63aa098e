"""The `sglang-sweep` command: a thin face over the flows and the pure rooms.

Commands that need no flow don't import Prefect. Exit status: 0 fine; 1 finished, but nothing is
feasible, requests failed, or something got slower; 2 the input is wrong; 3 the host needs a
person; 130 interrupted.
"""

import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from settings.invalid import InvalidSettings
from tasks.domain.errors import ExitStatus, SweepError

if TYPE_CHECKING:
    import asyncio


class _Out(Console):
    """Standard output; that nobody reads on isn't an error of ours."""

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `run_command`."""
        raise BrokenPipeError


def _version() -> str:
    from importlib.metadata import version

    return version("sglang-sweep")


out = _Out(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)
app = App(
    name="sglang-sweep",
    version=_version,
    console=out,
    error_console=err,
    result_action="return_value",
    help="Find the fastest correct SGLang server configuration on a GPU host.",
    help_epilogue="""Start with `sglang-sweep demo`: a whole sweep on a simulated host.

Exit status: 0 fine; 1 nothing feasible or requests failed; 2 wrong input; 3 the host needs a
person; 130 interrupted.""",
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
)

AsJson = Annotated[bool, Parameter(name="--json", negative=())]
Log = Annotated[str, Parameter(allow_leading_hyphen=True)]
Overrides = Annotated[tuple[str, ...], Parameter(name="--set", negative=())]


def main() -> None:
    """Run one command and turn whatever it ends with into an exit status."""
    status = run_command(sys.argv[1:])
    if "prefect" in sys.modules:
        # Prefect's log and event threads wait at exit for an API that may have gone: for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run_command(words: list[str]) -> int:
    """Run one command line; a person's mistake is a line on standard error, never a traceback."""
    try:
        status = app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return _refused(f"sglang-sweep: {_plain(error)} (sglang-sweep --help)")
    except InvalidSettings as error:
        return _refused(str(error))
    except SweepError as error:
        return _refused(str(error), error.exit_status)
    except KeyboardInterrupt:
        err.print("interrupted", style="yellow")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.OK
    return status if isinstance(status, int) else ExitStatus.OK


def _refused(message: str, status: ExitStatus = ExitStatus.BAD_INPUT) -> ExitStatus:
    """Say what is wrong, a line a fault, however narrow the terminal."""
    err.print(message, style="red", markup=False, soft_wrap=True)
    return status


def _plain(error: CycloptsError) -> str:
    return " ".join(str(error).split())


def print_json(content: object) -> None:
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    sys.stdout.write(orjson.dumps(content, option=options).decode() + "\n")


def ended(work: Coroutine[Any, Any, int | None], gently: "asyncio.Event | None" = None) -> int:
    """Run to the end; Ctrl-C cancels the work, or first asks it gently to end."""
    from flows.commands.interrupt import run_interruptible

    return run_interruptible(work, gently) or ExitStatus.OK
