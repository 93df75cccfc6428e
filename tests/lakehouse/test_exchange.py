"""Copies for verl and TRL: the columns their loaders want, each sampled turn once, and nothing that is withheld."""

import json
import os
import re
import subprocess
from pathlib import Path

import polars as pl
import pytest

from lakehouse.exchange import MASKED, NotExportable, export
from lakehouse.label import current, label
from lakehouse.query import query
from lakehouse.selection.select import Selection, select
from lakehouse.write import DuplicateEpisode, Writer
from tasks.serving.models import TINY
from tasks.stack.settings import ROOT

SEARCH = current("search")
SYSTEM, USER = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
FUNCTION = {"name": "search", "arguments": '{"query": "x"}'}
CALLED = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]}
FOUND = {"role": "tool", "tool_call_id": "c1", "content": "o"}
DONE = {"role": "assistant", "content": "done"}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]


def turns(make, first=(SYSTEM, USER), **changes):
    """Two calls of one conversation."""
    common = {"tools": json.dumps(TOOLS), **changes}
    one = make.call([1, 2], [3], request_messages=json.dumps(first), response_message=json.dumps(CALLED), **common)
    seen = [*first, CALLED, FOUND]
    two = make.call(
        [1, 2, 3, 4], [5], index=1, parent_call_id="c0", request_messages=json.dumps(seen), response_message=json.dumps(DONE),
        **common,
    )  # fmt: skip
    return [one, two]


@pytest.fixture
def filled(lake, make):
    """A group of a solved and a failed episode of problem p, and one each that something withholds."""
    good = make.problem("p", spec=json.dumps({"accepted": ["x", "y"]}), edition=None)
    withheld = [
        make.problem("held-out", split="eval"),
        make.problem("no-licence", allowed_uses=["evaluation"]),
        make.problem("broken", null_failed=False),
    ]
    Writer(lake).append("problems", [good, *withheld])
    batch = make.group([True, False], calls=turns(make))
    batch += make.batch("held-out", split="eval", calls=turns(make))
    for name in ("no-licence", "broken", "unknown"):
        batch += make.batch(name, calls=turns(make))
    batch += make.batch("p", 7, run="infra", status="infra_error", calls=turns(make))
    batch += make.batch("p", 8, run="silent", match=None, calls=turns(make))
    batch.land(lake)
    label(lake, SEARCH)
    return lake


WITHHELD = {
    "eval_split": 1,
    "gates_failed": 1,
    "licence": 1,
    "no_evidence": 1,
    "not_trainable": 1,
    "unknown_problem": 1,
}


def written(lake, form, shape, path, **options):
    done = export(lake, form, shape, path, **{"episodes": None, "training_set_id": None, "use": "training"} | options)
    if path.suffix == ".parquet":
        return done, pl.read_parquet(path).to_dicts()
    return done, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_verl_prompts_have_the_columns_of_rl_datasets(filled, tmp_path, suffix):
    done, [row] = written(filled, "verl", "prompts", tmp_path / f"train.{suffix}")
    assert list(row) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert row["data_source"] == "lakeloop/search" and row["ability"] == "search"
    assert [(m["role"], m["content"]) for m in row["prompt"]] == [("system", "s"), ("user", "u")]
    assert row["reward_model"]["style"] == "rule" and json.loads(row["reward_model"]["ground_truth"]) == ["x", "y"]
    assert row["extra_info"]["index"] == 0 and row["extra_info"]["split"] == "train"
    assert (row["extra_info"]["episodes"], row["extra_info"]["success"]) == (2, 0.5)
    assert done.left_out == WITHHELD
    assert done.episodes + sum(done.left_out.values()) == 8


def test_what_came_with_two_payloads_stays(filled, make, tmp_path):
    with pytest.raises(DuplicateEpisode):
        make.batch(sample=0, calls=[make.call([1, 2, 3], [4, 9])]).land(filled)
    done, [row] = written(filled, "verl", "prompts", tmp_path / "train.jsonl")
    assert done.left_out == WITHHELD | {"disputed": 1}
    assert row["extra_info"]["episodes"] == 1


def test_a_copy_for_evaluation_takes_what_is_held_out(filled, tmp_path):
    _, rows = written(filled, "trl", "prompts", tmp_path / "eval.jsonl", use="evaluation")
    assert {row["problem_id"] for row in rows} == {"p", "held-out", "no-licence"}


def test_a_copy_that_was_made_is_in_the_audit_and_one_that_was_refused_is_not(filled, tmp_path):
    with pytest.raises(NotExportable, match="nothing to export"):
        written(filled, "trl", "prompts", tmp_path / "none.jsonl", episodes="select 'no' as episode_id")
    written(filled, "trl", "prompts", tmp_path / "train.jsonl")
    rows = query(
        "select object, detail ->> '$.form', detail ->> '$.use' from audit where action = 'export'", filled
    ).rows()
    assert rows == [("episodes", "trl prompts", "training")]


def test_trl_episodes_are_prompt_and_completion_with_label_and_reward(filled, tmp_path):
    _, rows = written(filled, "trl", "episodes", tmp_path / "kto.jsonl")
    assert [row["label"] for row in rows] in ([True, False], [False, True])
    for row in rows:
        assert row["prompt"] == [SYSTEM, USER]
        assert [message["role"] for message in row["completion"]] == ["assistant", "tool", "assistant"]
        assert row["completion"][0]["tool_calls"][0]["function"] == {"name": "search", "arguments": {"query": "x"}}
        assert json.loads(row["tools"]) == TOOLS and row["rubric"] == SEARCH
        assert row["reward"] == (1.0 if row["label"] else 0.0)


def test_in_parquet_arguments_are_text_since_a_column_has_one_type(filled, tmp_path):
    _, rows = written(
        filled,
        "verl",
        "episodes",
        tmp_path / "sft.parquet",
        episodes="select episode_id from rewards where outcome = 1",
    )
    [row] = rows
    assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == FUNCTION["arguments"]
    assert json.loads(row["tools"]) == TOOLS


def test_arguments_that_are_no_object_stay_visible(lake, make, tmp_path):
    Writer(lake).append("problems", [make.problem("p", edition=None)])
    broken = {**CALLED, "tool_calls": [{**CALLED["tool_calls"][0], "function": {"name": "search", "arguments": "{x"}}]}
    call = make.call([1], [2], request_messages=json.dumps([USER]), response_message=json.dumps(broken))
    make.batch(calls=[call]).land(lake)
    label(lake, SEARCH)
    _, [row] = written(lake, "trl", "episodes", tmp_path / "a.jsonl")
    assert row["completion"][0]["tool_calls"][0]["function"]["arguments"] == {"malformed": "{x"}


def test_where_history_was_rewritten_each_sampled_turn_is_in_one_completion_and_verl_sees_it_once(lake, make, tmp_path):
    Writer(lake).append("problems", [make.problem("p", edition=None)])
    one, two = turns(make)
    two = two.model_copy(update={"segment": 1, "parent_call_id": None, "fork_reason": "retokenised"})
    make.batch(calls=[one, two]).land(lake)
    label(lake, SEARCH)
    _, rows = written(lake, "trl", "episodes", tmp_path / "a.jsonl")
    assert [[m["role"] for m in row["completion"]] for row in rows] == [["assistant"], ["assistant"]]
    assert rows[1]["prompt"][-1]["content"] == "o"
    _, [whole] = written(lake, "verl", "episodes", tmp_path / "a.parquet")
    assert len(whole["messages"]) == 5


def test_tokens_are_the_training_rows_with_labels_where_the_loss_counts(filled, tmp_path):
    made = select(filled, Selection(objective="grpo", rubrics=[SEARCH], filter="grpo", policy_version=1))
    done, rows = written(filled, "trl", "tokens", tmp_path / "t.parquet", training_set_id=made.training_set_id)
    assert done.rows == made.rows == 2 and {len(row["input_ids"]) for row in rows} == {5}
    for row in rows:
        assert row["input_ids"] == [1, 2, 3, 4, 5]
        assert row["labels"] == [MASKED, MASKED, 3, MASKED, 5]
        assert row["logprobs"] == [0, 0, -0.5, 0, -0.5] and row["advantage"] != 0


def test_what_was_withdrawn_since_a_set_was_made_stays(filled, make, tmp_path):
    made = select(filled, Selection(objective="grpo", rubrics=[SEARCH], filter="grpo", policy_version=1))
    Writer(filled).put_problems([make.problem("p", allowed_uses=["evaluation"])])
    with pytest.raises(NotExportable, match="2 licence"):
        written(filled, "trl", "tokens", tmp_path / "t.parquet", training_set_id=made.training_set_id)
    assert list(tmp_path.glob("*t.parquet*")) == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"form": "areal"}, "verl, trl"),
        ({"shape": "tokens"}, "verl has no file of tokens"),
        ({"name": "a.csv"}, r"\.jsonl or \.parquet"),
        ({"shape": "episodes", "name": "a.jsonl"}, "parquet only"),
        ({"form": "trl", "shape": "tokens"}, "--training-set"),
        ({"training_set_id": "ts-none"}, "no training set"),
        ({"episodes": "select 1 as one"}, "column episode_id"),
        ({"episodes": "select episode_id from episodes where false"}, "no episode is selected"),
        ({"use": "sale"}, "training or evaluation"),
    ],
)
def test_what_cannot_be_exported_is_refused_with_the_reason(filled, tmp_path, wrong, told):
    given = {"form": "verl", "shape": "prompts", "name": "a.jsonl"} | wrong
    form, shape, name = given.pop("form"), given.pop("shape"), given.pop("name")
    with pytest.raises(NotExportable, match=told):
        written(filled, form, shape, tmp_path / name, **given)


def test_every_kinds_ground_truth_is_what_its_grader_compares_with(lake, make):
    from lakehouse.query import query

    Writer(lake).append(
        "problems",
        [
            make.problem("a", kind="python", spec=json.dumps({"answer": "7/2", "template": "t"})),
            make.problem("b", kind="search", spec=json.dumps({"accepted": ["x"]})),
            make.problem("c", kind="swe", spec=json.dumps({"fail_to_pass": ["t"]})),
        ],
    )
    truths = query("select ground_truth from ground_truths order by problem_id", lake)["ground_truth"].to_list()
    assert truths == ["7/2", '["x"]', '{"fail_to_pass": ["t"]}']


# ---- verl's own dataset classes read its files


@pytest.mark.optional  # `make install-verl`: two gigabytes for one test
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_verl_reads_prompts_and_trains_what_the_model_said(filled, tmp_path, suffix):
    python = ROOT / ".venv-verl" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no environment of verl at {python}: run `make install-verl`")
    (given,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    (tmp_path / "conversations.py").write_text(given)
    prompts, conversations = tmp_path / f"prompts.{suffix}", tmp_path / "sft.parquet"
    written(filled, "verl", "prompts", prompts)
    written(filled, "verl", "episodes", conversations, episodes="select episode_id from rewards where outcome = 1")
    files = (prompts, conversations, TINY, tmp_path / "cache", tmp_path / "conversations.py")
    ran = subprocess.run(
        [python, Path(__file__).with_name("read_by_verl.py"), *files],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(
        next(line for line in ran.stdout.splitlines() if line.startswith("found ")).removeprefix("found ")
    )
    assert found["asked"]["raw_prompt"] == [SYSTEM, USER] and found["asked"]["data_source"] == "lakeloop/search"
    assert json.loads(found["asked"]["reward_model"]["ground_truth"]) == ["x", "y"] and found["asked"]["index"] == 0
    said = ['<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call><|im_end|>\n', "done<|im_end|>\n"]
    assert found["trained"] == "".join(said)
    assert found["whole"].startswith("<|im_start|>system\ns\nTools: search()<|im_end|>\n<|im_start|>user\nu<|im_end|>")
    assert all(one in found["whole"] for one in (*said, "<|im_start|>tool\no<|im_end|>"))


# ---- TRL's own trainers take a step on each of its files


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(TINY)


@pytest.fixture
def model(tokenizer):
    """An untrained one with tiny's vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape))


TERMS = {
    "max_steps": 1,
    "per_device_train_batch_size": 2,
    "report_to": [],
    "use_cpu": True,
    "save_strategy": "no",
    "bf16": False,
}


def loaded(path):
    from datasets import load_dataset

    kind = "parquet" if path.suffix == ".parquet" else "json"
    return load_dataset(kind, data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))


@pytest.mark.parametrize("shape", ["episodes", "tokens"])
def test_sft_takes_a_step(filled, tmp_path, tokenizer, model, shape):
    from trl import SFTConfig, SFTTrainer

    made = select(filled, Selection(objective="grpo", rubrics=[SEARCH], filter="grpo", policy_version=1))
    path = tmp_path / ("a.jsonl" if shape == "episodes" else "a.parquet")
    done, _ = written(filled, "trl", shape, path, training_set_id=made.training_set_id)
    terms = SFTConfig(output_dir=str(tmp_path / "out"), **TERMS)
    trainer = SFTTrainer(model=model, args=terms, train_dataset=loaded(path), processing_class=tokenizer)
    assert trainer.train().global_step == 1
    assert len(trainer.train_dataset) == done.rows == 2
    if shape == "tokens":
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch["labels"].tolist() == [[-100, -100, 3, -100, 5]] * 2


def test_grpo_takes_a_step_and_its_reward_function_sees_the_ground_truth(filled, tmp_path, tokenizer, model):
    from trl import GRPOConfig, GRPOTrainer

    path = tmp_path / "prompts.jsonl"
    written(filled, "trl", "prompts", path)
    seen = []

    def reward(completions, ground_truth, **more):
        seen.extend(ground_truth)
        return [float(len(one)) for one in completions]

    terms = GRPOConfig(output_dir=str(tmp_path / "out"), num_generations=2, max_completion_length=4, **TERMS)
    trainer = GRPOTrainer(
        model=model, args=terms, train_dataset=loaded(path), processing_class=tokenizer, reward_funcs=reward
    )
    assert trainer.train().global_step == 1
    assert [json.loads(one) for one in seen] == [["x", "y"]] * 2
