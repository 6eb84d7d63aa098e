"""A sweep's end as Prefect's UI tells it: the decision, what failed and why, where to read on."""

from collections.abc import Iterator, Mapping, Sequence

from tasks.domain.configuration import TrialVerdict
from tasks.domain.page import fenced, page_key
from tasks.results.alerts import decision_text
from tasks.results.command_line import deploy_lines
from tasks.results.conclusion import Conclusion
from tasks.results.view import FailureGroup, View, failure_groups


def story(page: View, conclusion: Conclusion, report: str) -> str:
    """Write the page; `report` is where the whole report lies."""
    stored, best = page.stored, page.selection.best
    sections = [
        f"# {stored.sweep.name} on {stored.sweep.host}: {conclusion.name}",
        f"**{decision_text(page.selection)}**",
        conclusion.message,
    ]
    if best is not None and (command := deploy_lines(best.result)):
        sections.append(fenced(command, "sh"))
    verdicts = {result.trial.label: result.verdict for result in stored.trials}
    modes = _by_mode(failure_groups(page.failures))
    if modes:
        sections.append("## What failed")
        sections += [_failure(groups, verdicts) for groups in modes]
    sections += _refused(page)
    sections.append(f"## Everything else\n\nThe whole report, on the worker: `{report}`")
    return "\n\n".join(sections) + "\n"


def _by_mode(groups: Sequence[FailureGroup]) -> list[list[FailureGroup]]:
    """Put what had the same cause together, however it ended."""
    modes: dict[str, list[FailureGroup]] = {}
    for group in groups:
        modes.setdefault(group.first.mode, []).append(group)
    return list(modes.values())


def _failure(groups: Sequence[FailureGroup], verdicts: Mapping[str, TrialVerdict]) -> str:
    """Tell a cause once: explanation, what became of it, evidence, cure, where to read on."""
    group, first = groups[0], groups[0].first
    launches = sum(each.launches for each in groups)
    count = f"{launches} launches" if launches > 1 else "one launch"
    outcome = "; ".join(dict.fromkeys(each.outcome for each in groups))
    trials = dict.fromkeys(label for each in groups for label in each.trials)
    key = page_key(first.trial_id)
    lines = [
        f"### {first.mode}",
        first.explanation,
        f"- **outcome**: {outcome} ({count}, in {first.phase})",
        f"- **cure**: {first.cure or 'nothing that may be done without a person'}",
        f"- **trials**: {'; '.join(f'{label} ({verdicts[label]})' for label in trials)}",
        # Beside the page of an artifact lie those of the keys.
        f"- **the launch, with its log and command**: [{key}](../key/{key})",
    ]
    evidence = "\n".join(f"{one.line}  {one.text}" for one in group.evidence)
    told = "\n".join(lines[2:])
    return "\n\n".join([*lines[:2], told, *([fenced(evidence)] if evidence else [])])


def _refused(page: View) -> Iterator[str]:
    """The trials that were given up for another reason than a failed launch."""
    wrong = [r for r in page.stored.trials if r.verdict is TrialVerdict.INCORRECT]
    rows = [(r.trial.label, "incorrect", r.reason) for r in wrong]
    rows += [("; ".join(labels), "pruned", reason) for reason, labels in page.unlaunched.items()]
    if rows:
        table = "\n".join(f"| {_cell(a)} | {b} | {_cell(c)} |" for a, b, c in rows)
        yield f"## What was refused\n\n| trial | | why |\n| --- | --- | --- |\n{table}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
