"""Read what the probe tells of the machine below the interpreter."""

import re
from collections.abc import Mapping
from typing import Any

from tasks.domain.facts import PlaceFacts, SystemFacts
from tasks.stack.imports import deciding_line


def read_system(answer: Mapping[str, Any]) -> SystemFacts:
    """The machine's part of the probe's answer."""
    system, driver, builders = answer["system"], answer["driver"], answer["builders"]
    served, tools = driver.get("value"), answer["tools"]
    told = {name: outcome.get("value") or {} for name, outcome in tools.items()}
    shm, disk = system["shm"] or (None, None), system["disk"] or (None, None)
    return SystemFacts(
        glibc=system["glibc"],
        driver_cuda=served["cuda"] if served else None,
        driver_status=_driver_status(driver),
        shm_total_bytes=shm[0],
        shm_free_bytes=shm[1],
        disk_free_bytes=disk[1],
        cuda_home=system["cuda_home"],
        tools={name: _release(each.get("said", "")) for name, each in told.items()},
        libraries={stem: tuple(paths) for stem, paths in answer["libraries"].items()},
        tool_paths={name: each["path"] for name, each in told.items() if "path" in each},
        architectures={n: tuple(each.get("architectures", ())) for n, each in told.items()},
        programs=builders["programs"],
        headers_missing=tuple(builders["headers_missing"]),
        python_headers=builders["python_headers"],
        places={name: PlaceFacts(**place) for name, place in system["places"].items()},
        memory_bytes=system["memory"]["total"] or None,
        memory_available_bytes=system["memory"]["available"] or None,
        memory_limit_bytes=system["memory"]["limit"],
        limits={name: (soft, hard) for name, (soft, hard) in system["limits"].items()},
        cores=system["cores"],
        interfaces=tuple(system["interfaces"] or ()),
        nvswitches=system["fabric"]["switches"],
        fabric_manager=system["fabric"]["manager"],
        build_locks=tuple(system["build_locks"]),
    )


def _release(said: str) -> str:
    match = re.search(r"release (\d+\.\d+)", said)
    return match.group(1) if match else ""


def _driver_status(driver: Mapping[str, Any]) -> str:
    """`ok`, the number that `cuInit` returned, how the question ended, or nothing: no library."""
    if driver.get("value"):
        status = driver["value"]["status"]
        return "ok" if status == 0 else str(status)
    if "cannot open shared object" in driver.get("error", ""):
        return ""
    return deciding_line(driver.get("error", ""), driver["code"], driver["stderr"])
