"""nvidia-smi's answers, with what a field says when the GPU or the driver lacks it."""

from tasks.domain.facts import GpuFacts
from tasks.domain.nvidia_smi import GpuApp, parse_apps, parse_gpus, parse_samples, throttles

GPUS = """\
0, NVIDIA RTX PRO 6000 Blackwell Server Edition, GPU-8d9f, 97887, 4, 580.95.05, 12.0
1, NVIDIA A100-SXM4-40GB, GPU-77aa, 40960, [N/A], 580.95.05, [N/A]
"""
SAMPLES = """\
1767355200.123 7 0, 341.20, 2430, 12481, 63, 91822, 97, 0x0000000000000000
1767355200.125 9 1, [N/A], 210, 405, 31, 4, [Not Supported], 0x0000000000000001
1767355200.125 9 2, 599.98, 1605, 12481, 88, 91822, 100, 0x0000000000000024
Field "clocks_event_reasons.active" is not a valid field to query.
Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost
1767355201.1 10 0, 341.20, 24
"""


def test_gpus() -> None:
    first, second = parse_gpus(GPUS)
    assert first == GpuFacts(
        index=0,
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        uuid="GPU-8d9f",
        memory_total_mib=97887,
        memory_used_mib=4,
        driver_version="580.95.05",
        compute_capability="12.0",
    )
    assert (second.memory_used_mib, second.compute_capability) == (0, "")


def test_what_is_no_gpu_is_passed_over() -> None:
    assert parse_gpus("") == ()
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("Failed to initialize NVML: Driver/library version mismatch\n") == ()


def test_samples() -> None:
    first, second, third = parse_samples(SAMPLES, 1000)
    assert (first.at, first.monotonic_ns, first.index) == (1767355200.123, 1007, 0)
    assert (first.power_w, first.sm_clock_mhz, first.memory_clock_mhz) == (341.2, 2430, 12481)
    assert (first.temperature_c, first.memory_used_mib, first.utilization_percent) == (
        63,
        91822,
        97,
    )
    assert (second.power_w, second.utilization_percent, second.throttle) == (None, None, ())
    assert third.throttle == ("sw_power_cap", "sw_thermal_slowdown")


def test_idle_is_no_throttling() -> None:
    assert throttles("0x0000000000000001") == ()
    assert throttles("0x00000000000000c8") == (
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    )
    assert throttles("[N/A]") == ()


def test_apps() -> None:
    assert parse_apps("812, sglang::scheduler_TP0, 91818\n9, [Not Found], [N/A]\n") == (
        GpuApp(812, "sglang::scheduler_TP0", 91818),
        GpuApp(9, "[Not Found]", None),
    )
