"""Run by verl's own Python: what its dataset classes make of two exported files, as one line of JSON.

Arguments: the prompts, the conversations, the tokenizer's folder, a folder for caches, a file that defines `Conversations`.
"""

import json
import runpy
import sys

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset

prompts, conversations, folder, cache, given = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
asked = RLHFDataset(prompts, tokenizer, OmegaConf.create({"cache_dir": cache, "filter_overlong_prompts_workers": 1}))
Conversations = runpy.run_path(given)["Conversations"]
trained = Conversations(conversations, tokenizer, OmegaConf.create({"pad_mode": "no_padding", "max_length": 1024}))
[row], [told] = list(asked), list(trained)
loss = [token for token, counts in zip(told["input_ids"].tolist(), told["loss_mask"].tolist(), strict=True) if counts]
found = {
    "asked": {name: row[name] for name in ("raw_prompt", "data_source", "reward_model", "index")},
    "whole": tokenizer.decode(told["input_ids"]),
    "trained": tokenizer.decode(loss),
}
print("found " + json.dumps(found))
