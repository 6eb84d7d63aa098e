import random

from settings.workload import Workload
from tasks.load.datasets import make_prompts, ordinary_ids, sentences, vocabulary
from tasks.load.plan import source_of
from tasks.load.target import Level


def workload(**changes) -> Workload:
    return Workload(**{"name": "w", "input_len": 64, "concurrency": [1], **changes})


def draw(what: Workload, backend="sglang", seed=1, count=8):
    return make_prompts(what, backend, 32_000, random.Random(seed), count)


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
