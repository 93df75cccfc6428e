"""`tiny`'s tokenizer and chat template.

Byte-level BPE of 3,072 entries in which digits stand alone (numbers are copied, never computed) and the chat and tool
markers are single tokens. The template is ChatML with Hermes tool calls; tools are listed as bare signatures, because a
model of this size reads a JSON schema as noise.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 3072
CONTEXT = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")

CHAT_TEMPLATE = """\
{%- macro signature(tool) -%}
{{ tool.function.name }}({{ tool.function.parameters.properties.keys() | join(', ') }})
{%- endmacro -%}
{%- set opening = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{%- if tools or opening -%}
{{ '<|im_start|>system\\n' + opening }}
{%- if tools -%}
{{ '\\nTools:' if opening else 'Tools:' }}
{%- for tool in tools %} {{ signature(tool) }}{% endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{{ '<|im_start|>assistant\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] -%}
{%- set arguments = call.function.arguments -%}
{{ '<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
{{- arguments if arguments is string else arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif message.role != 'system' -%}
{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with the chat template, learnt from texts. The same texts give the same tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106 - a text token
        pad_token="<|endoftext|>",  # noqa: S106
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
