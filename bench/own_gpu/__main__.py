"""The torch backend on one card: `python -m bench.own_gpu [speed] [update] [memory]`.

All three without a name. `update` needs TRL; `--sizes tiny` tries the bench on any machine.
"""

import argparse

import torch

from bench.bars import Verdicts
from bench.own_gpu import memory, speed, update
from bench.own_gpu.work import free

PARTS = {"speed": speed.run, "update": update.run, "memory": memory.run}


def main() -> None:
    """Run the parts and print their figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--sizes", default="0.5B,1.5B", help="0.5B, 1.5B, tiny; with commas")
    args = parser.parse_args()
    verdicts = Verdicts()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"device {device}, torch {torch.__version__}", flush=True)
    for size in args.sizes.split(","):
        for name in args.parts or PARTS:
            PARTS[name](size, verdicts)
            free()
    verdicts.close()


if __name__ == "__main__":
    main()
