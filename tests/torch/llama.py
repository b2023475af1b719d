"""A policy of the numpy engine as a Llama model of transformers."""

from typing import Any

import numpy as np
import torch
import transformers

from engine.training.model import EPS, THETA, Array, Params


def as_llama(params: Params) -> Any:
    """Return a model that computes the logits of `params`, all of them trained."""
    config = params.config
    model: Any = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.width,
            intermediate_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=config.context,
            rms_norm_eps=EPS,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
            tie_word_embeddings=True,
        )
    )
    weights = {name: torch.from_numpy(tensor) for name, tensor in _tensors(params).items()}
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert missing == ["lm_head.weight"]  # it is that of the embedding
    bias = torch.from_numpy(params.head_bias.copy())
    model.lm_head.bias = torch.nn.Parameter(bias, requires_grad=False)
    return model.eval()


def trained_of(model: Any) -> dict[str, Any]:
    """Return the trained parameters by name."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def as_numpy(model: Any, flat: Any, params: Params) -> Array:
    """Return a vector of the trained parameters, or of their gradient, in the order of `params`."""
    parts = flat.split([parameter.numel() for parameter in trained_of(model).values()])
    values = {
        name: part.reshape(one.shape).numpy()
        for part, (name, one) in zip(parts, trained_of(model).items(), strict=True)
    }
    result = params.like()
    for name, view in _tensors(result).items():
        view[...] = values[name]
    return result.flat


def _tensors(params: Params) -> dict[str, Array]:
    """Return views of `params` by the names of transformers."""
    config = params.config
    width = config.width
    tensors = {"model.embed_tokens.weight": params["embed"], "model.norm.weight": params["norm"]}
    for i in range(config.layers):
        qkv, gate_up = params[f"{i}.qkv"].T, params[f"{i}.gate_up"].T
        q, k, v = np.split(qkv, [width, 2 * width])
        gate, up = np.split(gate_up, 2)
        for name, view in (
            ("input_layernorm", params[f"{i}.norm1"]),
            ("self_attn.q_proj", q),
            ("self_attn.k_proj", k),
            ("self_attn.v_proj", v),
            ("self_attn.o_proj", params[f"{i}.out"].T),
            ("post_attention_layernorm", params[f"{i}.norm2"]),
            ("mlp.gate_proj", gate),
            ("mlp.up_proj", up),
            ("mlp.down_proj", params[f"{i}.down"].T),
        ):
            tensors[f"model.layers.{i}.{name}.weight"] = view
    return tensors
