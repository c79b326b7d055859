"""Seconds of a training step, of decoding, of a diagnosis and of predictions, beside an earlier
checkout.

Run: python benchmarks/beside.py FOLDER [--rounds 10] [--work step decode doctor predict], where
`git worktree add FOLDER COMMIT` has made the folder. In every round each checkout does the work in
a process of its own, in turn, and the ratio is taken within a round: both meet the same neighbours.
Seconds are of the process's CPU time, after the same work was done once.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_MODEL = """
import torch
from normscope.model import EncoderDecoder, ModelConfig
torch.set_num_threads(1)
torch.manual_seed(0)
config = ModelConfig(placement="post-ln", width=128, ffn_width=256, heads=4)
model = EncoderDecoder(config, 1000, 1000)
ids = torch.randint(4, 1000, (16, 24))
"""
WORK = {
    "step": _MODEL
    + """
from normscope.model import Layout
layout = Layout(torch.full((16,), 24))
tokens = ids.flatten()
def work():
    for _ in range(4):
        hidden = model(tokens, layout, tokens, layout)
        logits = hidden @ model.output_rows().T
        torch.nn.functional.cross_entropy(logits, tokens).backward()
        model.zero_grad()
""",
    "decode": _MODEL
    + """
from normscope.decode.search import BeamConfig, beam_search
sources = [torch.cat([row, torch.tensor([2])]) for row in ids[:8]]
search = BeamConfig(beam=4, max_length_ratio=0, max_length_extra=16)
def work():
    beam_search(model.eval(), sources, search)
""",
    "doctor": _MODEL
    + """
import normscope
layer = torch.nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
small = torch.nn.Sequential(
    torch.nn.Embedding(200, 32), torch.nn.TransformerEncoder(layer, 3), torch.nn.Linear(32, 200)
)
tokens = torch.randint(200, (2, 12))
def work():
    normscope.diagnose(small, (tokens,))
""",
    "predict": """
from normscope.theory.predict import ModelSetting, predict
deep = ModelSetting(blocks=400, width=512)
causal = ModelSetting(stack="decoder", blocks=12, setting="xavier-normal", tokens=24)
def work():
    for name in ("pre-ln", "post-ln", "deepnorm", "peri-ln"):
        predict(name, deep)
        predict(name, causal)
""",
}
_TIMED = """
import time, warnings
warnings.simplefilter("ignore")
work()
start = time.process_time()
work()
print(time.process_time() - start)
"""


def seconds(checkout: Path, work: str) -> float:
    """Returns the CPU seconds that a checkout takes for a work, in a fresh process."""
    settled = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WORK[work] + _TIMED],
        env={**os.environ, **settled},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--work", nargs="+", choices=list(WORK), default=list(WORK))
    options = parser.parse_args()
    earlier = options.folder.resolve()
    print(f"{'work':10}{'before s':>10}{'now s':>10}{'ratio':>8}  least to most of the rounds")
    for work in options.work:
        before, now = [], []
        for _ in range(options.rounds):
            before.append(seconds(earlier, work))
            now.append(seconds(HERE, work))
        ratios = sorted(one / other for one, other in zip(now, before, strict=True))
        middle = [statistics.median(found) for found in (before, now, ratios)]
        row = f"{work:10}{middle[0]:10.3f}{middle[1]:10.3f}{middle[2]:8.3f}"
        print(f"{row}  {ratios[0]:.3f} to {ratios[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
