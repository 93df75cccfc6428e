import hashlib
import json
import random
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from tasks.serving.models import TINY
from tasks.training.tiny import code, pretrain
from tasks.training.tiny.traces import echo, lookup, ranking, recital, traces

RECIPE = json.loads((TINY / "recipe.json").read_text())


@pytest.fixture(scope="module")
def repairs():
    """Traces of a few modules of the standard library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "MODULES", code.MODULES[:8])
        return code.code_traces(1, 2)


def test_the_shipped_weights_are_those_the_recipe_names_and_small():
    raw = (TINY / "model.safetensors").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == RECIPE["sha256"]
    assert len(raw) <= 10_000_000


def test_the_shipped_model_has_the_parameters_the_recipe_names():
    model = AutoModelForCausalLM.from_pretrained(TINY)
    assert sum(p.numel() for p in model.parameters()) == RECIPE["parameters"]


def conversation(trace):
    """The messages of a trace, read back from its text."""
    messages = []
    for part in "".join(piece.text for piece in trace).split("<|im_start|>")[1:]:
        role, _, text = part.partition("\n")
        text = text.removesuffix("\n").removesuffix("<|im_end|>")
        if text.startswith("<tool_call>"):
            call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
            messages.append({"role": role, "content": None, "tool_calls": [{"type": "function", "function": call}]})
        else:
            messages.append({"role": role, "content": text})
    return messages


@pytest.mark.parametrize(
    "make", [lookup, ranking, recital, echo, None], ids=lambda make: make.__name__ if make else "repair"
)
def test_a_trace_is_written_as_the_chat_template_writes_it(make, repairs):
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for seed in range(20):
        rng = random.Random(seed)
        trace = make(rng) if make else rng.choice(repairs)
        rendered = tokenizer.apply_chat_template(conversation(trace), tokenize=False)
        assert rendered == "".join(piece.text for piece in trace)


def test_the_template_lists_tools_as_signatures_and_prompts_for_an_answer():
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tool = {
        "type": "function",
        "function": {"name": "open", "parameters": {"type": "object", "properties": {"title": {"type": "string"}}}},
    }
    messages = [{"role": "system", "content": "Look it up."}, {"role": "user", "content": "Where?"}]
    text = tokenizer.apply_chat_template(messages, tools=[tool], tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nLook it up.\nTools: open(title)<|im_end|>\n"
        "<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_pretraining_words_come_from_passages_of_training_countries_only():
    from sandboxes.problems.search.corpus import load
    from sandboxes.problems.search.questions import split_of
    from tasks.training.tiny.traces import real_words

    shown = " ".join(
        f"{country} {' '.join(fields.values())}"
        for country, fields in load().countries.items()
        if split_of(country) == "train"
    )
    assert real_words() and all(word in shown for word in real_words())


def test_the_same_seed_gives_the_same_traces(repairs):
    first, second = ([next(stream) for _ in range(20)] for stream in (traces(3, repairs, 0.5), traces(3, repairs, 0.5)))
    assert first == second


def test_the_same_arguments_give_the_same_weights_and_a_folder_that_loads(tmp_path, monkeypatch, repairs):
    torch.set_num_threads(1)
    monkeypatch.setattr(pretrain, "TOKENIZER_TRACES", 300)
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(pretrain, "LlamaConfig", lambda **told: LlamaConfig(**told | small))
    for name in ("a", "b"):
        torch.manual_seed(0)
        lessons = pretrain.curriculum(0, repairs, echoes=1, lookups=1, repairs=1)
        pretrain.pretrain(
            tmp_path / name, start=None, lessons=[replace(one, batch=2) for one in lessons], code=repairs, peak=1e-3
        )
    a, b = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert a == b
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "a").dtype == torch.float16
