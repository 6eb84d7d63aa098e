"""Make a tiny Llama with random weights, and its tokenizer, without a network.

    python make_tiny_model.py OUTPUT_FOLDER

0.4 million parameters (0.9 MB) in bfloat16, 512 tokens of vocabulary, 4,096 of context. Needs
torch and transformers. The same seed and versions give the same weights.

What a random model says is worthless, but it must not look *broken*, or a check for degenerate
output would be right to refuse it. Two choices see to that:

- `INITIALIZER_RANGE` 0.2, where 0.02 is usual. With 0.02 or 0.06, greedy output falls into a loop
  of 5 to 38 distinct tokens in 64; with 0.2 it keeps 40 to 59. Among seeds 0 to 11, 10 repeats
  itself least: over 12 prompts, no token more than three times in a row, 53 distinct at least.
- The output rows of special tokens and of single bytes are zero. The largest of the other 253
  logits is always above zero, so greedy decoding answers with the readable pieces of words and
  never ends by itself.
"""

# Type checkers run in the project's own environment, which has no torch; its types are partial.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, arg-type"
# mypy: disable-error-code="no-any-return"

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 10
VOCABULARY_SIZE = 512
CONTEXT_TOKENS = 4096
INITIALIZER_RANGE = 0.2
SPECIAL_TOKENS = ("<s>", "</s>", "<pad>")
UNSPOKEN_TOKENS = len(SPECIAL_TOKENS) + 256  # the special tokens, then one for each byte

# Enough distinct words for 253 merges, so that every id below VOCABULARY_SIZE is a token.
TEXT = """
The server reads a prompt and answers one token after another. A scheduler puts many requests into
one batch, keeps what it has computed for them in a cache, and evicts the oldest pages when memory
runs short. Throughput grows with the batch, and so does the time that each reader waits. Whoever
tunes such a machine changes one setting, starts it again, loads it, measures, and writes down what
happened: the model, the flags, the number of users, the first word's delay, the pause between two
words. Most of the night is spent on launching. Some launches fail because a library was built
against another, some because the port is still held by a process that nobody remembers, some
because the graphics card ran out of memory while capturing graphs. A careful engineer keeps the
log, looks for the cause above the last line, fixes it, and tries once more before going to bed.
In the morning there should be a table with the best command at the top, every failed attempt below
it with its reason, and enough evidence to believe both. Numbers without their conditions are worth
little; a fast answer that is wrong is worth nothing at all.
"""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on `TEXT`; it encodes any text and decodes its own ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    bos, eos, pad = SPECIAL_TOKENS
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        model_max_length=CONTEXT_TOKENS,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model() -> LlamaForCausalLM:
    """Make the random Llama whose greedy output is varied and readable."""
    config = LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_TOKENS,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=SPECIAL_TOKENS.index("<s>"),
        eos_token_id=SPECIAL_TOKENS.index("</s>"),
        pad_token_id=SPECIAL_TOKENS.index("<pad>"),
    )
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[:UNSPOKEN_TOKENS] = 0
    return model.to(torch.bfloat16)


def main() -> None:
    """Write model and tokenizer to the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} OUTPUT_FOLDER")
    tokenizer = make_tokenizer()
    if len(tokenizer) != VOCABULARY_SIZE:
        sys.exit(f"the tokenizer has {len(tokenizer)} tokens, not {VOCABULARY_SIZE}")
    tokenizer.save_pretrained(sys.argv[1])
    make_model().save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
