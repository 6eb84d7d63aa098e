import json
import random

import pytest

from settings.workload import Workload
from tasks.domain.errors import InputError
from tasks.load.datasets import (
    check_files,
    make_prompts,
    ordinary_ids,
    sentences,
    vocabulary,
)
from tasks.load.plan import source_of
from tasks.load.prompts import read_entries
from tasks.load.questions import Question, make_questions, predecessors
from tasks.load.target import Level


def workload(**changes) -> Workload:
    return Workload(**{"name": "w", "input_len": 64, "concurrency": [1], **changes})


def draw(what: Workload, backend="sglang", seed=1, count=8):
    return make_prompts(what, backend, 32_000, random.Random(seed), count)


def ask(what: Workload, backend="sglang") -> list[Question]:
    return make_questions(what, backend, 32_000, random.Random(1))


def test_random_prompts_have_exactly_the_length_asked_for():
    prompts = draw(workload(input_len=17))
    assert [len(prompt) for prompt in prompts] == [17] * 8


def test_random_tokens_keep_away_from_both_ends_of_the_vocabulary():
    ids = {token for prompt in draw(workload(input_len=2000)) for token in prompt}
    assert min(ids) >= 1600
    assert max(ids) < 30_400


def test_even_a_tiny_vocabulary_has_ordinary_ids():
    assert list(ordinary_ids(1)) == [0]
    assert list(ordinary_ids(10)) == list(range(10))


def test_the_seed_decides_the_prompts():
    assert draw(workload()) == draw(workload())
    assert draw(workload()) != draw(workload(), seed=2)


def test_every_level_and_repeat_has_prompts_of_its_own():
    sources = [
        source_of(seed, workload(), level, repeat)
        for seed in (1, 2)
        for level in (Level(concurrency=1), Level(concurrency=2), Level(request_rate=1.0))
        for repeat in (0, 1)
    ]
    firsts = [tuple(make_prompts(workload(), "sglang", 32_000, s, 1)[0]) for s in sources]
    assert len(set(firsts)) == len(firsts)


def test_text_prompts_are_consecutive_sentences_of_about_the_length():
    prompts = draw(workload(dataset="text", input_len=130))
    for prompt in prompts:
        assert len(prompt.split()) == 100
        assert any(sentence in prompt for sentence in sentences())


def test_text_may_be_longer_than_the_bundled_prose():
    (prompt,) = draw(workload(dataset="text", input_len=20_000), count=1)
    assert len(prompt.split()) == round(20_000 / 1.3)


def test_text_prompts_share_no_beginning():
    openings = {prompt[:12] for prompt in draw(workload(dataset="text"), count=50)}
    assert len(openings) == 50


def test_chat_gets_random_words_for_random_tokens():
    (prompt,) = draw(workload(input_len=13), "openai-chat", count=1)
    assert len(prompt.split()) == 10
    assert set(prompt.split()) <= set(vocabulary())


def test_the_prose_has_a_sentence_a_line():
    assert len(sentences()) > 100
    assert all(line.endswith((".", "?")) for line in sentences())


def test_questions_share_the_prefixes_of_their_groups():
    what = workload(dataset="shared-prefix", prefix_groups=3, prefix_len=50, input_len=7)
    prompts = draw(what, count=40)
    assert {len(prompt) for prompt in prompts} == {57}
    assert len({tuple(prompt[:50]) for prompt in prompts}) == 3
    assert len({tuple(prompt[50:]) for prompt in prompts}) == 40
    assert {tuple(p[:50]) for p in prompts}.isdisjoint(tuple(p[:50]) for p in draw(what, seed=2))


def test_where_only_text_can_be_sent_prefixes_are_words():
    what = workload(dataset="shared-prefix", prefix_groups=2, prefix_len=50, input_len=7)
    prompts = draw(what, "openai-chat", count=20)
    assert len({" ".join(prompt.split()[:38]) for prompt in prompts}) == 2


SHAREGPT = (
    '[{"conversations": [{"from": "gpt", "value": "Hi"}, {"from": "human", "value": "one"}]},'
    ' {"conversations": [{"from": "human", "value": "two"}]}]'
)
LINES = (
    '{"prompt": "one"}\n\n{"messages": [{"role": "system", "content": "be kind"},'
    ' {"role": "user", "content": "two"}]}\n"three"\n'
)


@pytest.mark.parametrize(
    ("text", "prompts"), [(SHAREGPT, ["one", "two"]), (LINES, ["one", "two", "three"])]
)
def test_prompts_come_from_a_file(text, prompts, tmp_path):
    path = tmp_path / "prompts"
    path.write_text(text)
    assert [entry.turns[0] for entry in read_entries(path)] == prompts
    what = workload(dataset="file", file=str(path), requests=2 * len(prompts))
    drawn = [question.prompt for question in ask(what)]
    assert sorted(drawn) == sorted([*prompts, *prompts])
    assert set(drawn[: len(prompts)]) == set(prompts)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no prompt"),
        ("[1, 2", "the array: not JSON"),
        ('{"prompt": "one"}\n{"prompt"', "line 2: not JSON"),
        ('{"prompt": "one"}\n{"question": "two"}', "line 2: expected a text"),
        ('[{"messages": [{"role": "assistant", "content": "x"}]}]', "entry 0: expected"),
        ('{"prompt": "one", "output_len": 0}', "line 1: output_len 0 is not a number of tokens"),
        ('{"prompt": "one", "output_len": "9"}', "line 1: output_len '9' is not a number"),
    ],
)
def test_an_unreadable_file_is_named_with_its_place(text, fault, tmp_path):
    path = tmp_path / "prompts"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        read_entries(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"file: .*none: No such file"):
        read_entries(tmp_path / "none")


def test_files_are_checked_before_anything_starts(tmp_path):
    trace = tmp_path / "trace"
    trace.write_text("1\n2\n")
    arrivals = {"kind": "trace", "file": str(trace)}
    check_files(workload())
    with pytest.raises(InputError, match="No such file"):
        check_files(workload(dataset="file", file=str(tmp_path / "none")))
    with pytest.raises(InputError, match="2 time stamps; 3 requests"):
        check_files(workload(concurrency=[], request_rate=[1], requests=3, arrivals=arrivals))


def test_each_line_may_ask_for_a_length_of_its_own(tmp_path):
    path = tmp_path / "prompts"
    path.write_text('{"prompt": "one", "output_len": 7}\n{"prompt": "two"}\n')
    what = workload(dataset="file", file=str(path), output_len=9, requests=4)
    assert sorted((each.prompt, each.output_len) for each in ask(what)) == [
        *[("one", 7)] * 2,
        *[("two", 9)] * 2,
    ]


def test_a_conversation_is_asked_turn_by_turn():
    questions = ask(workload(dataset="conversations", turns=3, requests=5))
    first, second, third, *_ = (question.prompt for question in questions)
    assert [question.before for question in questions[:3]] == [(), (first,), (first, second)]
    assert len({first, second, third}) == 3
    assert predecessors(questions) == (-1, 0, 1, -1, 3)
    assert predecessors(questions[:1]) == ()


def test_conversations_of_a_file_have_as_many_turns_as_they_have(tmp_path):
    path = tmp_path / "prompts"
    turns = [{"from": "human", "value": text} for text in ("a", "b", "c")]
    path.write_text(json.dumps([{"conversations": turns}, {"prompt": "alone"}]))
    what = workload(dataset="conversations", file=str(path), turns=2, requests=6)
    asked = sorted((each.prompt, each.before) for each in ask(what))
    assert asked == [*[("a", ())] * 2, *[("alone", ())] * 2, *[("b", ("a",))] * 2]
