"""Whatever a trial holds, trial.json gives it back."""

import json
import math
from dataclasses import fields, replace
from types import MappingProxyType

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.domain.configuration import (
    Attempt,
    EndedProcess,
    PeerCommand,
    ServerConfiguration,
    Spell,
    Trial,
    TrialResult,
    TrialVerdict,
)
from tasks.domain.diagnosis import Action, Cleanup, Diagnosis, Evidence, Phase, Remedy
from tasks.domain.measurement import LevelResult, RunVerdict, Validity
from tasks.results.records import dump_trial, load_trial
from tests.results import factory

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOAT = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), FINITE, TEXT)
ITEM = st.one_of(st.integers(), FINITE, TEXT)
VALUE = st.one_of(SCALAR, st.lists(ITEM, max_size=3))


def some(strategy, most=3):
    return st.lists(strategy, max_size=most).map(tuple)


def built(made, **given):
    """Build a dataclass with every field: those that aren't given follow from their types."""
    return st.builds(made, **{field.name: given.get(field.name, ...) for field in fields(made)})


def named(strategy):
    return st.dictionaries(TEXT, strategy, max_size=3)


REMEDY = built(
    Remedy,
    summary=TEXT,
    env=named(TEXT),
    args=named(SCALAR),
    scale_args=named(FLOAT),
    rename_args=named(TEXT),
    longer_timeout=FINITE,
    cleanup=some(st.sampled_from(Cleanup)),
    another_port=st.booleans(),
    wait_s=FLOAT,
    alters=st.booleans(),
)
DIAGNOSIS = built(
    Diagnosis,
    mode=TEXT,
    phase=st.sampled_from(Phase),
    action=st.sampled_from(Action),
    explanation=TEXT,
    remedy=st.none() | REMEDY,
    evidence=some(st.builds(Evidence, line=st.integers(), text=TEXT)),
)
ATTEMPT = built(
    Attempt,
    number=st.integers(),
    repeat=st.integers(),
    command=some(TEXT),
    env=named(TEXT),
    stack=TEXT,
    started_at=FLOAT,
    remedies=some(REMEDY, 1),
    ready_s=st.none() | FLOAT,
    exit_code=st.none() | st.integers(),
    diagnosis=st.none() | DIAGNOSIS,
    ended=some(
        built(EndedProcess, started_at=FINITE, devices=some(TEXT), memory_mib=st.none() | FINITE), 1
    ),
    peers=some(built(PeerCommand, command=some(TEXT), env=named(TEXT)), 1),
    spells=some(st.builds(Spell, doing=TEXT, started_at=FINITE, seconds=FINITE), 1),
)
LEVEL = st.builds(
    LevelResult,
    workload=TEXT,
    concurrency=st.none() | st.integers(),
    request_rate=st.none() | FLOAT,
    repeat=st.integers(),
    metrics=named(FLOAT),
    verdict=st.builds(RunVerdict, st.sampled_from(Validity), some(TEXT)),
    client=named(st.one_of(FINITE, st.integers(), TEXT)),
)
RESULT = built(
    TrialResult,
    trial=st.builds(
        Trial,
        trial_id=TEXT,
        axes=named(VALUE),
        configuration=st.builds(
            ServerConfiguration, TEXT, named(VALUE), named(TEXT), st.none() | TEXT
        ),
        baseline=st.booleans(),
    ),
    verdict=st.sampled_from(TrialVerdict),
    reason=TEXT,
    attempts=some(ATTEMPT),
    levels=some(LEVEL),
    remedies=some(REMEDY, 1),
    fingerprint=TEXT,
    repeats_done=st.integers(),
)


@settings(max_examples=60, deadline=None)
@given(RESULT)
def test_a_trial_comes_back_exactly(result: TrialResult):
    back = load_trial(dump_trial(result))
    assert back == result
    assert repr(back) == repr(result)  # 1 == 1.0 == True, but they aren't the same flag


def test_a_nan_metric_comes_back_and_the_file_is_json():
    result = factory.measured(factory.trial(), levels=(factory.level(9, accept_length=math.nan),))
    content = dump_trial(result)
    json.loads(content, parse_constant=lambda name: 1 / 0)
    assert math.isnan(load_trial(content).levels[0].metrics["accept_length"])


def test_bytes_that_were_no_text_cost_a_character_and_no_more():
    result = replace(factory.night()[0], reason="torn \udcff line")
    assert load_trial(dump_trial(result)).reason == "torn ? line"


def test_any_mapping_is_written():
    configuration = replace(factory.trial().configuration, env=MappingProxyType({"A": "1"}))
    result = factory.measured(replace(factory.trial(), configuration=configuration))
    assert load_trial(dump_trial(result)).trial.configuration.env == {"A": "1"}


def test_a_field_of_a_later_version_is_ignored():
    content = json.loads(dump_trial(factory.night()[0]))
    content["colour"] = "green"
    assert load_trial(json.dumps(content).encode()) == factory.night()[0]
