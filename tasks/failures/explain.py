"""Put a failure before a person, as a Markdown page, and before a program, as JSON."""

import shlex
import signal
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasks.domain.configuration import Attempt
from tasks.domain.diagnosis import Action, Diagnosis, Remedy
from tasks.domain.facts import Finding, GpuFacts
from tasks.domain.page import fenced
from tasks.domain.secret import is_secret
from tasks.failures.catalogue import BY_NAME
from tasks.failures.text import plain

LAST_LINES = 200
_WIDTH = 76
"""Characters that a page of Prefect's UI shows in a row; the deciding words mustn't be cut."""

_FOLLOWS = {
    Action.RETRY: "The sweep launches again with the remedy, if it hasn't tried that yet.",
    Action.PRUNE: "The sweep gives this configuration up and goes on.",
    Action.STOP: "The sweep stops on this host unless another software stack is listed.",
}

Json = str | int | float | bool | None | Mapping[str, "Json"] | Sequence["Json"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known of the host and the launch; what isn't is left out of the page.

    `follows` says what the sweep does next, which the diagnosis alone can't tell; `log_path`
    where the whole log is; `good_env` is the environment of the last launch that came up; `unmet`
    what the host lacks for the remedy, None where that wasn't looked at.
    """

    follows: str = ""
    log: str = ""
    log_path: str = ""
    good_env: Mapping[str, str] | None = None
    gpus: Sequence[GpuFacts] = ()
    findings: Sequence[Finding] = field(default=())
    unmet: Sequence[str] | None = None


def failure_page(attempt: Attempt, around: Surroundings | None = None) -> str:
    """Write the page on a failed attempt: cause, evidence, cure, what follows, the command."""
    around = around or Surroundings()
    diagnosis = attempt.diagnosis
    if diagnosis is None:
        return f"# Attempt {attempt.number} didn't fail\n"
    sections = [
        f"# {diagnosis.mode}\n\n{diagnosis.explanation}",
        _summary(attempt, diagnosis, around.follows),
        _evidence(diagnosis),
        _cure(diagnosis, attempt.remedies, around.unmet),
        _command(attempt),
        _difference(attempt, around.good_env),
        _gpus(around.gpus),
        _findings(around.findings),
        _log(around, attempt.folder),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(attempt: Attempt, diagnosis: Diagnosis, follows: str) -> str:
    """Tabulate which launch it was and how it ended."""
    rows = [
        ("attempt", f"{attempt.number} of repeat {attempt.repeat}"),
        ("phase", diagnosis.phase.value.replace("_", " ")),
        ("exit code", _exit_code(attempt.exit_code)),
        *([("node", _host_of_node(attempt, diagnosis.node))] if attempt.peers else []),
        ("stack", f"`{attempt.stack}`"),
        ("what follows", follows or f"**{diagnosis.action}**: {_FOLLOWS[diagnosis.action]}"),
    ]
    if diagnosis.docs:
        rows.append(("more", f"`{diagnosis.docs}`"))
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def _exit_code(code: int | None) -> str:
    """Write an exit status, with its name where it is a signal."""
    if code is None:
        return "none, it was still running"
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-code) or names.get(code - 128)
    return f"{code} ({name})" if name else str(code)


def _evidence(diagnosis: Diagnosis) -> str:
    """Quote the deciding lines with their numbers."""
    if not diagnosis.evidence:
        return "## Evidence\n\nThe log says nothing; the end of the process decided."
    width = len(str(max(one.line for one in diagnosis.evidence)))
    lines = [
        line
        for one in diagnosis.evidence
        for line in textwrap.wrap(
            one.text,
            _WIDTH,
            initial_indent=f"{one.line:>{width}}  ",
            subsequent_indent=" " * (width + 2),
            break_on_hyphens=False,
        )
    ]
    return f"## Evidence\n\n{fenced(chr(10).join(lines))}"


def _cure(diagnosis: Diagnosis, tried: Sequence[Remedy], unmet: Sequence[str] | None) -> str:
    """Say what cures it, why that may be done by itself, and what was in force already."""
    lines = ["## Cure"]
    if diagnosis.remedy and diagnosis.remedy.summary in {remedy.summary for remedy in tried}:
        lines.append("It came back in spite of what cures it most often.")
    elif diagnosis.remedy:
        lines.append(f"{_sentence(diagnosis.remedy.summary)}: {changes(diagnosis.remedy)}.")
        lines += _checked(diagnosis, unmet)
        lines.append(_safety(diagnosis.remedy))
    else:
        lines.append("Nothing that may be done without a person.")
    if tried:
        done = "\n".join(f"- {remedy.summary}: {changes(remedy)}" for remedy in tried)
        lines.append(f"Already in force in this launch:\n\n{done}")
    return "\n\n".join(lines)


def _checked(diagnosis: Diagnosis, unmet: Sequence[str] | None) -> list[str]:
    """Say what the remedy requires of the host, and whether the host has it."""
    mode, remedy = BY_NAME.get(diagnosis.mode), diagnosis.remedy
    if unmet:
        return [f"**It can't be done here**: {'; '.join(unmet)}."]
    if mode is None or not mode.check:
        return []
    if unmet is not None and remedy and remedy.requires:
        return [f"Checked on the host: {mode.check}."]
    return [f"It helps where this holds: {mode.check}."]


def _sentence(text: str) -> str:
    """Begin a text with a capital."""
    return text[:1].upper() + text[1:]


def _safety(remedy: Remedy) -> str:
    """Say why a remedy may be applied without asking."""
    if remedy.alters:
        return "It is reversible, but changes what is measured: the row is marked `altered`."
    return "It is reversible and doesn't change what is measured."


def _flag(name: str) -> str:
    """Spell a flag as it is typed."""
    return f"--{name.replace('_', '-')}"


def changes(remedy: Remedy) -> str:
    """List what a remedy changes, as a person would type it."""
    parts = [f"`{name}={value}`" for name, value in remedy.env.items()]
    for name, value in remedy.args.items():
        flag = _flag(name)
        if value is None or value is False:
            parts.append(f"no `{flag}`")
        else:
            parts.append(f"`{flag}`" if value is True else f"`{flag} {value}`")
    parts += [f"`{_flag(name)}` times {factor:g}" for name, factor in remedy.scale_args.items()]
    parts += [f"`{_flag(old)}` becomes `{_flag(new)}`" for old, new in remedy.rename_args.items()]
    parts += [f"clean up {what.value.replace('_', ' ')}" for what in remedy.cleanup]
    parts += ["another port"] if remedy.another_port else []
    parts += ["the next software stack"] if remedy.another_stack else []
    parts += [f"wait {remedy.wait_s:g} s"] if remedy.wait_s else []
    parts += [f"{remedy.longer_timeout:g} times the time"] if remedy.longer_timeout != 1.0 else []
    return ", ".join(parts) or "nothing, it is only repeated"


def _host_of_node(attempt: Attempt, rank: int) -> str:
    """Say which of a server's nodes it is."""
    return f"{rank} on {attempt.peers[rank - 1].host}" if rank else "0, the first"


def _command(attempt: Attempt) -> str:
    """Give the command to reproduce it by hand, of every node."""
    blocks = [_spelt(attempt.env, attempt.command)]
    blocks += [f"On {peer.host}:\n\n{_spelt(peer.env, peer.command)}" for peer in attempt.peers]
    return "\n\n".join(["## By hand", *blocks])


def _spelt(variables: Mapping[str, str], command: Sequence[str]) -> str:
    """Write a command for a shell, a variable or a flag a line."""
    env = [f"{name}={_shell_value(name, value)}" for name, value in sorted(variables.items())]
    words = [*env, *(shlex.quote(word) for word in command)]
    lines: list[str] = []
    for word in words:
        glued = lines and not word.startswith("-") and lines[-1].startswith("-")
        if glued and " " not in lines[-1]:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return fenced(" \\\n  ".join(lines), "sh")


def _shell_value(name: str, value: str) -> str:
    """Write a value for a shell; a secret is taken from the reader's own environment."""
    return f'"${name}"' if is_secret(name) else shlex.quote(value)


def _difference(attempt: Attempt, good_env: Mapping[str, str] | None) -> str:
    """Show what differs from the environment of the last launch that came up."""
    if good_env is None:
        return ""
    names = sorted({*attempt.env, *good_env})
    lines = [
        f"{sign}{name}={'(hidden)' if is_secret(name) else env[name]}"
        for name in names
        for sign, env in (("-", good_env), ("+", attempt.env))
        if name in env and attempt.env.get(name) != good_env.get(name)
    ]
    title = "## Environment against the last launch that came up\n\n"
    return title + (fenced("\n".join(lines), "diff") if lines else "The same.")


def _gpus(gpus: Sequence[GpuFacts]) -> str:
    """Tabulate the GPUs as they were after the failure, those alike in one row."""
    if not gpus:
        return ""
    alike: dict[str, list[str]] = {}
    for gpu in gpus:
        memory = f"{gpu.memory_used_mib:,} of {gpu.memory_total_mib:,} MiB"
        alike.setdefault(f"{gpu.name} | {memory}", []).append(str(gpu.index))
    rows = [f"| {', '.join(indices)} | {told} |" for told, indices in alike.items()]
    title = "## GPUs\n\nAs they were after the failure.\n\n"
    return title + "| | | memory used |\n| --- | --- | --- |\n" + "\n".join(rows)


def _findings(findings: Sequence[Finding]) -> str:
    """List what the check of the stack found."""
    if not findings:
        return ""
    lines = [
        f"- **{one.severity}** {_sentence(one.summary)}. {_sentence(one.fix)}".rstrip()
        for one in findings
    ]
    return "## The software stack\n\n" + "\n".join(lines)


def _log(around: Surroundings, folder: str) -> str:
    """Show the log's end, and say where the rest is."""
    where = around.log_path or (f"{folder}/server.log" if folder else "")
    lines = _last_lines(around.log)
    parts = ["## Log"] if where or around.log else []
    parts += [f"Whole log: `{where}`"] if where else []
    parts += (
        [f"Its last {len(lines)} lines:\n\n{fenced(chr(10).join(lines))}"] if around.log else []
    )
    return "\n\n".join(parts)


def _last_lines(log: str) -> list[str]:
    """Take the log's last lines that say something; of a progress bar what was seen last."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in plain(log).split("\n"))
    return [line for line in lines if line.strip()][-LAST_LINES:]


def as_json(diagnosis: Diagnosis | None) -> dict[str, Json]:
    """Give a diagnosis as `sglang-sweep diagnose --json` prints it; a healthy log has nulls."""
    if diagnosis is None:
        return dict.fromkeys(("failure", "phase", "action", "remedy", "explanation", "docs")) | {
            "evidence": []
        }
    return {
        "failure": diagnosis.mode,
        "phase": diagnosis.phase.value,
        "action": diagnosis.action.value,
        "remedy": _remedy_json(diagnosis.remedy),
        "evidence": [{"line": one.line, "text": one.text} for one in diagnosis.evidence],
        "explanation": diagnosis.explanation,
        "docs": diagnosis.docs,
    }


def _remedy_json(remedy: Remedy | None) -> dict[str, Json] | None:
    """Give a remedy with every field, so that a reader needs no defaults."""
    if remedy is None:
        return None
    return {
        "summary": remedy.summary,
        "env": dict(remedy.env),
        "args": dict(remedy.args),
        "scale_args": dict(remedy.scale_args),
        "rename_args": dict(remedy.rename_args),
        "cleanup": [what.value for what in remedy.cleanup],
        "another_port": remedy.another_port,
        "another_stack": remedy.another_stack,
        "wait_s": remedy.wait_s,
        "longer_timeout": remedy.longer_timeout,
        "alters": remedy.alters,
        "requires": [
            {"need": one.need.value, "what": one.what, "text": one.text} for one in remedy.requires
        ],
    }
