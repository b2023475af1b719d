"""Tiny random models of transformers, made here."""

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{%- for message in messages -%}<{{ message.role }}>{{ message.content }}\n{%- endfor -%}"
    "{%- if add_generation_prompt %}<assistant>{% endif -%}"
)


def make_model(folder: Path) -> Path:
    """Write a random Qwen2 model with a character tokenizer; return its folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {chr(code): code for code in range(1, 200)} | {"[UNK]": 200, "[END]": 0}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", eos_token="[END]"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=201,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model: Any = transformers.Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return folder
