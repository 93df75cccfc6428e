"""Programs that tests run in a process of its own, for they hold weights in memory. Each prints a line of JSON."""

SPANS = """
import json, sys
import torch
from transformers import AutoModelForCausalLM

calls, folders, temperature = json.load(sys.stdin)
models = {int(v): AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32).train(False) for v, f in folders.items()}
right, wrong = [], []
for call in calls:
    ids, first = torch.tensor([call["prompt"] + call["completion"]]), len(call["prompt"])
    with torch.inference_mode():
        of = {
            v: (m(input_ids=ids).logits[0, first - 1 : -1] / temperature).log_softmax(-1).gather(1, ids[0, first:, None])[:, 0]
            for v, m in models.items()
        }
    for at, (version, logprob) in enumerate(zip(call["versions"], call["logprobs"])):
        for v in set(call["versions"]):
            (right if v == version else wrong).append(abs(of[v][at].item() - logprob))
print(json.dumps({"right": sum(right) / len(right), "most": max(right), "wrong": sum(wrong) / len(wrong)}))
"""

LOAD = """
import json, sys
import mlflow.transformers, torch

parts = mlflow.transformers.load_model(sys.argv[1], return_type="components")
model, apart, tokens = parts["model"].train(False), 0.0, 0
for probe in json.load(open(sys.argv[2])):
    ids = torch.tensor([probe["token_ids"]])
    with torch.inference_mode():
        found = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    apart = max(apart, (found - torch.tensor(probe["logprobs"])).abs().max().item())
    tokens += len(found)
assert parts["tokenizer"].decode(parts["tokenizer"]("one two")["input_ids"]).startswith("one")
print(json.dumps({"dtype": str(model.dtype), "apart": apart, "tokens": tokens}))
"""
