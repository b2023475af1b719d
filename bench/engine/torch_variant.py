"""The same policy and update in plain torch: what `bench.engine` compares with, where there is
torch. Run by the bench with a file of work; it imports nothing of the engine."""

import json
import sys
from typing import Any

import numpy as np

try:
    import torch
    from torch.nn import functional as f
except ImportError:
    print("SKIP torch_variant: no torch in this Python")
    sys.exit(0)

from bench.engine.naive_numpy import HEADS, LAYERS, load, serve

Cache = list[tuple[torch.Tensor, torch.Tensor] | None]


class Torch:
    """Policy, reference and Adam."""

    def __init__(self, work: dict[str, Any]) -> None:
        self.work = work
        base = {name: torch.from_numpy(value) for name, value in load(work["base"]).items()}
        self.reference = base
        self.w = {name: value.clone() for name, value in base.items()}
        for name in work["trained"]:
            self.w[name].requires_grad_(True)
        hyper = work["hyper"]
        self.adam = torch.optim.Adam(
            [self.w[name] for name in work["trained"]],
            lr=hyper["lr"],
            betas=tuple(hyper["betas"]),
            eps=hyper["adam_eps"],
        )
        head = base["embed"].shape[1] // HEADS
        angle = np.outer(np.arange(512), 10000.0 ** (-np.arange(0, head, 2) / head))
        self.cos, self.sin = (
            torch.from_numpy(part(angle).astype(np.float32)) for part in (np.cos, np.sin)
        )

    def _norm(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return f.rms_norm(x, (x.shape[-1],), gain, 1e-5)

    def _turn(self, x: torch.Tensor, start: int) -> torch.Tensor:
        cos = self.cos[start : start + x.shape[2]]
        sin = self.sin[start : start + x.shape[2]]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def hidden(
        self, w: dict[str, torch.Tensor], ids: torch.Tensor, cache: Cache | None = None
    ) -> torch.Tensor:
        """Return the rows before the head; with a cache, `ids` continue its content."""
        rows, length = ids.shape
        x = w["embed"][ids]
        start = 0 if cache is None or cache[0] is None else cache[0][0].shape[2]
        for i in range(LAYERS):
            qkv = self._norm(x, w[f"{i}.norm1"]) @ w[f"{i}.qkv"]
            q, k, v = (
                part.view(rows, length, HEADS, -1).transpose(1, 2) for part in qkv.chunk(3, -1)
            )
            q, k = self._turn(q, start), self._turn(k, start)
            if cache is not None:
                held = cache[i]
                if held is not None:
                    k, v = torch.cat([held[0], k], dim=2), torch.cat([held[1], v], dim=2)
                cache[i] = (k, v)
            mixed = f.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
            x = x + mixed.transpose(1, 2).reshape(rows, length, -1) @ w[f"{i}.out"]
            gate, up = (self._norm(x, w[f"{i}.norm2"]) @ w[f"{i}.gate_up"]).chunk(2, -1)
            x = x + (f.silu(gate) * up) @ w[f"{i}.down"]
        return self._norm(x, w["norm"])

    def update(self) -> None:
        """Do one GRPO update on the work's batch; logits only at sampled tokens."""
        batch, hyper = self.work["batch"], self.work["hyper"]
        longest = max(len(one["prompt"]) + len(one["tokens"]) for one in batch)
        ids = torch.zeros((len(batch), longest), dtype=torch.long)
        learn = torch.zeros((len(batch), longest), dtype=torch.bool)
        for row, one in enumerate(batch):
            start, end = len(one["prompt"]), len(one["prompt"]) + len(one["tokens"])
            ids[row, :end] = torch.tensor(one["prompt"] + one["tokens"])
            learn[row, start:end] = True
        where = learn[:, 1:]
        targets = ids[:, 1:][where]
        old = torch.tensor([value for one in batch for value in one["logprobs"]])
        advantage = torch.tensor(
            [one["advantage"] for one in batch for _ in one["tokens"]], dtype=torch.float32
        )

        def picked(w: dict[str, torch.Tensor]) -> torch.Tensor:
            logits = self.hidden(w, ids[:, :-1])[where] @ w["embed"].T
            logits[:, self.work["blocked"]] = -1e9
            return f.log_softmax(logits, dim=-1).gather(1, targets[:, None])[:, 0]

        with torch.no_grad():
            reference = picked(self.reference)
        for _ in range(hyper["epochs"]):
            new = picked(self.w)
            ratio = (new - old).exp()
            bounded = ratio.clamp(1 - hyper["clip"], 1 + hyper["clip"])
            policy = -torch.minimum(ratio * advantage, bounded * advantage)
            pull = (ratio.clamp(max=2.0) * (reference - new)).detach()
            loss = (policy - hyper["kl"] * pull * new).mean()
            self.adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(
                [self.w[name] for name in self.work["trained"]], hyper["grad_clip"]
            )
            self.adam.step()

    def answers(self) -> None:
        """Sample four answers of 60 tokens with a cache of keys and values."""
        with torch.inference_mode():
            self._answer()

    def _answer(self) -> None:
        generator = torch.Generator().manual_seed(0)
        ids = torch.tensor(self.work["prompt"]).repeat(4, 1)
        cache: Cache = [None] * LAYERS
        for _ in range(60):
            logits = self.hidden(self.w, ids, cache)[:, -1] @ self.w["embed"].T
            logits[:, self.work["never"]] = -1e9
            ids = torch.multinomial(f.softmax(logits, dim=-1), 1, generator=generator)

    def changed(self) -> list[float]:
        parts = [
            (self.w[name] - self.reference[name]).detach().ravel() for name in self.work["trained"]
        ]
        return [float(value) for value in torch.cat(parts)[:: self.work["every"]]]


if __name__ == "__main__" and len(sys.argv) > 1:
    with open(sys.argv[1], encoding="utf-8") as file:
        serve(
            Torch(json.load(file)), f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        )
