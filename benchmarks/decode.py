"""Sentences per second of beam search at the paper's size, beside CTranslate2 and Hugging Face
`generate`.

All decode the same random sources (25±15 tokens) to exactly 32 tokens with beam 5 on one thread,
one after the other in every round; CTranslate2 has the weights of ours. Rates are per second of the
process's CPU time, medians over rounds; ratios are within a round. Peak memory is that of a fresh
process which decodes the batch once.
"""

import argparse
import multiprocessing
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from normscope.decode.search import BeamConfig, beam_search
from normscope.exchange.libraries import write_ctranslate2
from normscope.model import EncoderDecoder, ModelConfig
from normscope.model.linear import fast_matmul
from normscope.tasks.words import Words
from normscope.train.device import keep_freed_memory

VOCABULARY, BEAM, OUTPUT_TOKENS = 10_000, 5, 32
PAD, EOS = 1, 2
Decode = Callable[[list[Tensor]], int]
"""Source sentences -> tokens of one hypothesis, as proof of what was decoded."""


def sources(sentences: int) -> list[Tensor]:
    """Random ids of normally distributed lengths, each ending with EOS."""
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(sentences, generator=generator) * 15 + 25).clamp(2, 60).int().tolist()
    draws = (torch.randint(4, VOCABULARY, (length,), generator=generator) for length in lengths)
    return [torch.cat([draw, torch.tensor([EOS])]) for draw in draws]


def model_of_ours() -> EncoderDecoder:
    """Post-LN as in the paper, always with the same weights."""
    torch.manual_seed(0)
    return EncoderDecoder(ModelConfig(placement="post-ln"), VOCABULARY, VOCABULARY).eval()


def ours(dtype: torch.dtype) -> Decode:
    """As `normscope translate` computes; the end token is held back until it is forced."""
    fast_matmul(torch.device("cpu"))
    model = model_of_ours().to(dtype)
    config = BeamConfig(
        beam=BEAM,
        max_length_ratio=0,
        max_length_extra=OUTPUT_TOKENS - 1,
        min_length=OUTPUT_TOKENS - 1,
    )

    def decode(batch: list[Tensor]) -> int:
        return len(beam_search(model, batch, config)[0][0].tokens)

    return decode


def ctranslate2(compute_type: str) -> Decode:
    """The same model in CTranslate2, with float32 or int8 products."""
    try:
        from ctranslate2 import Translator
    except ImportError as error:
        raise SystemExit(
            "the comparison needs CTranslate2: in a clone, pip install '.[bench]'"
        ) from error
    words = [f"word{i}" for i in range(VOCABULARY)]
    words[: EOS + 2] = ["<s>", "<pad>", "</s>", "<unk>"]
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(
            model_of_ours(), Path(folder), Words(ids={}, source=words, target=words, files={})
        )
        translator = Translator(
            folder, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=1
        )

    def decode(batch: list[Tensor]) -> int:
        found = translator.translate_batch(
            [[words[i] for i in source.tolist()[:-1]] for source in batch],
            beam_size=BEAM,
            min_decoding_length=OUTPUT_TOKENS,
            max_decoding_length=OUTPUT_TOKENS,
        )
        return len(found[0].hypotheses[0])

    return decode


def hugging_face(dtype: torch.dtype) -> Decode:
    """MarianMT, a Post-LN encoder-decoder, with random weights of the same shapes."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError as error:
        raise SystemExit(
            "the comparison needs transformers: in a clone, pip install '.[bench]'"
        ) from error
    sizes: dict[str, Any] = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 6), ("ffn_dim", 1024), ("attention_heads", 4))
    }
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        max_position_embeddings=128,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        forced_eos_token_id=EOS,
        **sizes,
    )
    model: Any = MarianMTModel(config)
    model.eval().to(dtype)

    def decode(batch: list[Tensor]) -> int:
        grid = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)
        with torch.inference_mode():
            found = model.generate(
                grid,
                attention_mask=(grid != PAD).long(),
                num_beams=BEAM,
                do_sample=False,
                min_new_tokens=OUTPUT_TOKENS,
                max_new_tokens=OUTPUT_TOKENS,
            )
        return int(found.shape[1]) - 1

    return decode


SYSTEMS: dict[str, tuple[Callable[[], Decode], bool]] = {
    "normscope fp32": (partial(ours, torch.float32), False),
    "normscope bf16": (partial(ours, torch.bfloat16), False),
    "ctranslate2 fp32": (partial(ctranslate2, "float32"), False),
    "ctranslate2 int8": (partial(ctranslate2, "int8"), False),
    "hugging face fp32": (partial(hugging_face, torch.float32), False),
    "hugging face fp32, oneDNN": (partial(hugging_face, torch.float32), True),
    "hugging face bf16": (partial(hugging_face, torch.bfloat16), False),
}
"""Name -> how to build it, and whether all float32 products of torch go through oneDNN."""


def use_onednn(on: bool) -> None:
    """Send float32 products to oneDNN: twice as fast as MKL on AMD, and still float32 where there
    is no AMX.
    """
    torch.backends.mkldnn.matmul.fp32_precision = "bf16" if on else "none"  # type: ignore[attr-defined]


def timed(decode: Decode, batch: list[Tensor], onednn: bool) -> float:
    """Sentences per second of the processor, of one run."""
    use_onednn(onednn)
    start = time.process_time()
    tokens = decode(batch)
    elapsed_seconds = time.process_time() - start
    if tokens != OUTPUT_TOKENS:
        raise SystemExit(
            f"decoded {tokens} tokens instead of {OUTPUT_TOKENS}: the comparison would not be fair"
        )
    return len(batch) / elapsed_seconds


def peak_megabytes(name: str, sentences: int) -> float:
    """Largest resident size of this process after one batch; call it in a fresh one."""
    build, onednn = SYSTEMS[name]
    torch.set_num_threads(1)
    timed(build(), sources(sentences), onednn)
    status = Path("/proc/self/status")
    if status.exists():  # rusage counts what the parent had when it forked
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )


def main() -> None:
    """Measure and print one line a system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="8 sentences, one round, float32 only")
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed runs of each system (default 3)"
    )
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, help="which; ratios are to the first (default all)"
    )
    options = parser.parse_args()
    sentences, rounds = (8, 1) if options.quick else (32, options.rounds)
    names = options.systems or [name for name in SYSTEMS if not options.quick or "fp32" in name]
    torch.set_num_threads(1)
    keep_freed_memory()
    batch = sources(sentences)
    decoders = {name: SYSTEMS[name][0]() for name in names}
    for name in names:
        timed(decoders[name], batch, SYSTEMS[name][1])
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            rates[name].append(timed(decoders[name], batch, SYSTEMS[name][1]))
    print(f"{'system':28}{'sentences/s':>12}{'range':>16}{'ratio':>8}{'peak MB':>10}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in names:
            median, spread = (
                statistics.median(rates[name]),
                f"{min(rates[name]):.2f}-{max(rates[name]):.2f}",
            )
            ratio = statistics.median(
                rate / base for rate, base in zip(rates[name], rates[names[0]], strict=True)
            )
            peak = pool.apply(peak_megabytes, (name, sentences))
            print(f"{name:28}{median:12.2f}{spread:>16}{ratio:8.2f}{peak:10.0f}", flush=True)


if __name__ == "__main__":
    main()
