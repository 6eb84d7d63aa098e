"""Numbers, times and names as a person reads them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from tasks.domain.configuration import TrialResult, Value
from tasks.domain.diagnosis import Remedy
from tasks.results.statistics import Estimate, Ratio

ABSENT = "–"

_TITLES = {
    "output_throughput": "output tok/s",
    "input_throughput": "input tok/s",
    "total_throughput": "total tok/s",
    "request_throughput": "requests/s",
    "accept_length": "accept length",
    "output_tokens_per_joule": "output tok/J",
    "largest_request_rate": "requests/s within the SLO",
    "largest_concurrency": "concurrency within the SLO",
}
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e_latency": "E2E"}


def metric_title(metric: str) -> str:
    """Name a metric briefly, with its unit: `p99 TTFT ms`."""
    statistic, _, rest = metric.removesuffix("_ms").partition("_")
    if metric.endswith("_ms") and rest in _LATENCIES:
        return f"{statistic} {_LATENCIES[rest]} ms"
    return _TITLES.get(metric, metric.replace("_", " "))


def number(value: float) -> str:
    """Write about four digits: `1,308`, `308.2`, `92.60`, `0.0458`."""
    places = _places(value)
    return f"{value:.3g}" if places is None else f"{value:,.{places}f}"


def estimate_text(found: Estimate | None) -> str:
    """Write a mean and half its interval, to the same digit: `1,308 ± 38`."""
    if found is None:
        return ABSENT
    text = number(found.mean)
    if found.interval is None:
        return text
    half = found.interval.high - found.mean
    places = _places(found.mean)
    return f"{text} ± {number(half) if places is None else f'{half:,.{places}f}'}"


def _places(value: float) -> int | None:
    size = abs(value)
    if 0 < size < 1:
        return None
    return 0 if size >= 1000 else 1 if size >= 100 else 2


def chance_text(chance: float | None) -> str:
    """Write a probability; one that the draws saw always or never isn't called certain."""
    if chance is None:
        return ABSENT
    if chance > 0.995:
        return "over 99 %"
    return "below 1 %" if chance < 0.005 else f"{100 * chance:.0f} %"


def gain_text(found: Ratio | None) -> str:
    """Write a ratio as a percentage: `+9.0 %`."""
    return ABSENT if found is None else _percent(found.value)


def interval_text(found: Ratio | None) -> str:
    """Write a ratio's interval as percentages: `+5.1 … +13.1 %`; nothing where there is none."""
    if found is None or found.interval is None:
        return ""
    return f"{_signed(found.interval.low)} … {_percent(found.interval.high)}"


def time_text(seconds: float) -> str:
    """Write UTC seconds since the epoch as a date and time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def value_text(value: Value) -> str:
    """Write an axis value."""
    return "on" if value is True else "off" if value is False else str(value)


def unlike_text(axes: Mapping[str, Value], reference: Mapping[str, Value]) -> str:
    """Name the axis values that differ from another trial's; nothing where none do."""
    return " ".join(
        f"{name}={value_text(value)}"
        for name, value in axes.items()
        if name not in reference or reference[name] != value
    )


def remedy_text(remedy: Remedy) -> str:
    """Say what a remedy sets: `SGLANG_DISABLE_CUDNN_CHECK=1`; its summary where it sets nothing."""
    parts = [f"{name}={value}" for name, value in remedy.env.items()]
    parts += [_flag(name, value) for name, value in remedy.args.items()]
    parts += [f"--{_dashed(name)} × {factor:g}" for name, factor in remedy.scale_args.items()]
    parts += [f"--{_dashed(new)} for --{_dashed(old)}" for old, new in remedy.rename_args.items()]
    return " ".join(parts) or remedy.summary


def remedies_text(result: TrialResult) -> str:
    """Say under which remedies a trial was measured."""
    return ", ".join(remedy_text(remedy) for remedy in result.remedies)


def varying_axes(trials: Iterable[Mapping[str, Value]]) -> tuple[str, ...]:
    """Name the axes that tell trials apart: those with more than one value."""
    seen: dict[str, set[str]] = {}
    for axes in trials:
        for name, value in axes.items():
            seen.setdefault(name, set()).add(repr(value))
    return tuple(name for name, values in seen.items() if len(values) > 1)


def _flag(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return f"without --{_dashed(name)}"
    return f"--{_dashed(name)}" if value is True else f"--{_dashed(name)} {value}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _percent(value: float) -> str:
    return f"{_signed(value)} %"


def _signed(value: float) -> str:
    return f"{(value - 1) * 100:+.1f}".replace("-", "−")
