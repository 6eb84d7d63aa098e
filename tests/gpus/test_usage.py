"""Energy and throttling of a run, against sums worked by hand."""

from dataclasses import replace

import pytest

from tasks.domain.measurement import (
    LevelResult,
    RequestOutcome,
    RequestRecord,
    RunVerdict,
    Validity,
)
from tasks.domain.nvidia_smi import GpuSample
from tasks.gpus.usage import energy_j, window_of, with_gpus

S = 1_000_000_000
RECORD = RequestRecord(0, 10 * S, 10 * S, 14 * S, RequestOutcome.FINISHED)
LEVEL = LevelResult(
    "chat", 1, None, 1, {"total_output_tokens": 1200.0}, RunVerdict(Validity.VALID), (RECORD,)
)


def sample(second: float, power_w: float | None = 300.0, **changes: object) -> GpuSample:
    made = GpuSample(
        at=second,
        monotonic_ns=int(second * S),
        index=0,
        power_w=power_w,
        sm_clock_mhz=2430,
        memory_clock_mhz=12481,
        temperature_c=63,
        memory_used_mib=90_000,
        utilization_percent=97,
    )
    return replace(made, **changes)


STEADY = [sample(second) for second in range(8, 17)]


def test_the_window_is_that_of_the_duration() -> None:
    warm = replace(RECORD, intended_ns=1 * S, end_ns=20 * S, warmup=True)
    late = replace(RECORD, intended_ns=11 * S, end_ns=15 * S)
    assert window_of(replace(LEVEL, records=(warm, late, RECORD))) == (10 * S, 15 * S)
    assert window_of(replace(LEVEL, records=(warm,))) is None
    assert window_of(replace(LEVEL, records=())) is None


def test_energy_is_power_integrated_between_the_samples() -> None:
    points = [(0, 100.0), (2 * S, 300.0), (4 * S, 300.0)]
    assert energy_j(points, (0, 4 * S)) == pytest.approx(400.0 + 600.0)
    # From 1 s (200 W) to 2 s (300 W), then half a second at 300 W.
    assert energy_j(points, (1 * S, 2_500_000_000)) == pytest.approx(250.0 + 150.0)
    # Shorter than the interval: on the line between two samples.
    assert energy_j(points, (500_000_000, 1_500_000_000)) == pytest.approx(200.0)
    # The last sample holds until the end.
    assert energy_j(points, (3 * S, 6 * S)) == pytest.approx(900.0)
    assert energy_j(points[:1], (0, 1 * S)) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0, 100.0), (8 * S, 100.0)],
        [(0, 100.0)],
        [(20 * S, 100.0)],
    ],
)
def test_no_energy_where_the_samples_leave_a_gap(points: list[tuple[int, float]]) -> None:
    assert energy_j(points, (0, 8 * S)) is None


def test_tokens_per_joule_of_the_gpus_in_use() -> None:
    second = [replace(each, index=1, power_w=100.0) for each in STEADY]
    idle = [replace(each, index=2, power_w=30.0, memory_used_mib=4) for each in STEADY]
    metrics = with_gpus(LEVEL, [*STEADY, *second, *idle]).metrics
    assert metrics["gpu_energy_j"] == pytest.approx(4 * 400.0)
    assert metrics["gpu_power_w"] == pytest.approx(400.0)
    assert metrics["output_tokens_per_joule"] == pytest.approx(1200 / 1600)
    assert metrics["total_output_tokens"] == 1200.0


def test_a_gpu_that_does_not_tell_its_power_leaves_no_energy() -> None:
    silent = [replace(each, index=1, power_w=None) for each in STEADY]
    assert "gpu_energy_j" not in with_gpus(LEVEL, [*STEADY, *silent]).metrics
    assert with_gpus(LEVEL, []) == LEVEL


def test_heat_makes_a_run_suspect_and_names_the_gpu() -> None:
    hot = [replace(s, index=3, throttle=("hw_thermal_slowdown", "hw_slowdown")) for s in STEADY[:5]]
    rest = [replace(s, index=3) for s in STEADY[5:]]
    judged = with_gpus(LEVEL, [*STEADY, *hot, *rest]).verdict
    assert judged.validity is Validity.SUSPECT
    assert judged.reasons == (
        "GPU 3 throttled in 60% of the time: hw_slowdown, hw_thermal_slowdown",
    )


def test_an_invalid_run_stays_invalid_with_one_reason_more() -> None:
    invalid = replace(LEVEL, verdict=RunVerdict(Validity.INVALID, ("no request finished",)))
    hot = [replace(each, throttle=("hw_slowdown",)) for each in STEADY]
    verdict = with_gpus(invalid, hot).verdict
    assert (verdict.validity, len(verdict.reasons)) == (Validity.INVALID, 2)


def test_running_at_the_power_limit_is_told_and_no_reason_for_doubt() -> None:
    capped = [replace(each, throttle=("sw_power_cap",)) for each in STEADY]
    level = with_gpus(LEVEL, capped)
    assert level.verdict.validity is Validity.VALID
    assert level.metrics["gpu_power_capped_share"] == 1.0


def test_one_hot_sample_in_many_is_no_reason_for_doubt() -> None:
    many = [sample(10 + i / 10) for i in range(41)]
    many[7] = replace(many[7], throttle=("sw_thermal_slowdown",))
    assert with_gpus(LEVEL, many).verdict.validity is Validity.VALID


def test_clocks_are_means_of_the_run_and_of_the_gpus_in_use() -> None:
    """Of 1000 and 2000 MHz on one, 2500 on the other; what was before the run doesn't count."""
    before = sample(5, sm_clock_mhz=300.0)
    first = [sample(11, sm_clock_mhz=1000.0), sample(12, sm_clock_mhz=2000.0)]
    second = [sample(11, index=1, sm_clock_mhz=2500.0), sample(13, index=1, sm_clock_mhz=None)]
    idle = sample(12, index=2, sm_clock_mhz=100.0, memory_used_mib=0)
    metrics = with_gpus(LEVEL, [before, *first, *second, idle]).metrics
    assert metrics["gpu_sm_clock_mhz"] == pytest.approx((1500 + 2500) / 2)
    assert metrics["gpu_memory_clock_mhz"] == 12481


def test_a_gpu_that_tells_no_clock_leaves_none() -> None:
    samples = [replace(each, sm_clock_mhz=None) for each in STEADY]
    assert "gpu_sm_clock_mhz" not in with_gpus(LEVEL, samples).metrics
