"""The torch backend on one device: `python -m bench.own_gpu [PART ...]`.

    python -m bench.own_gpu                                   speed, update, memory; on a card
    python -m bench.own_gpu smollm2 learning --gguf FILE      SmolLM2-135M; on any machine

`update` needs TRL; `smollm2` (its speed) and `learning` need its GGUF file.
"""

import argparse
import sys

import torch

from bench.bars import Verdicts
from bench.own_gpu import learning, memory, speed, update
from bench.own_gpu.work import free

CARD = {"speed": speed.run, "update": update.run, "memory": memory.run}


def main() -> None:
    """Run the parts and print their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*CARD, "smollm2", "learning", []])
    parser.add_argument("--sizes", default="0.5B,1.5B", help="0.5B, 1.5B, tiny; with commas")
    parser.add_argument("--gguf", default="", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--seeds", default="1,2,3", help="of `learning`, with commas")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="hyperparameters of `learning`"
    )
    args = parser.parse_args()
    verdicts = Verdicts()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    print(f"device {device}, torch {torch.__version__}, {threads} threads", flush=True)
    parts = args.parts or list(CARD)
    for size in args.sizes.split(","):
        for name in CARD.keys() & parts:
            CARD[name](size, verdicts)
            free()
    if {"smollm2", "learning"} & set(parts) and not args.gguf:
        sys.exit("smollm2 and learning need --gguf FILE")
    if "smollm2" in parts:
        learning.speed(args.gguf, verdicts)
    if "learning" in parts:
        changes = dict(pair.split("=") for pair in args.set)
        values = {
            name: int(value) if name == "epochs" else float(value)
            for name, value in changes.items()
        }
        seeds = [int(seed) for seed in args.seeds.split(",")]
        learning.run(args.gguf, seeds, values, verdicts)
    verdicts.close()


if __name__ == "__main__":
    main()
