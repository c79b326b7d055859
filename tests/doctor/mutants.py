"""Mutants of models: faults of known kinds put into healthy models, and whether the doctor names
each with its block.

`python tests/doctor/mutants.py` prints a row for each kind; words of the kinds' names may follow.
"""

import math
import random
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.mutant_bases import (
    ALPHA,
    BASES,
    BETA,
    BLOCKS,
    Base,
    Map,
    OwnAttention,
    Parts,
    Wiring,
    deepnorm,
    post,
    pre,
)
from normscope.doctor.diagnose import diagnose
from normscope.doctor.result import Finding

Join = Callable[[Tensor, Map, nn.Module], Tensor]
"""x, a sub-layer and its norm -> the stream after it."""
USUAL: dict[Wiring, Join] = {
    pre: lambda x, f, norm: x + f(norm(x)),
    post: lambda x, f, norm: norm(x + f(x)),
    deepnorm: lambda x, f, norm: norm(ALPHA * x + f(x)),
}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault."""

    mutate: Callable[[Base, int], object]
    """Changes a base at one of its blocks; returns False where that is nothing in this base."""
    at_block: bool = True
    """Whether one block alone is changed, which a finding must name."""


def at(mutate: Callable[[Base, int], object]) -> Kind:
    return Kind(mutate=mutate)


def whole(mutate: Callable[[Base], object]) -> Kind:
    return Kind(mutate=lambda base, block: mutate(base), at_block=False)


def wired(wiring: Callable[[Base], Wiring | None]) -> Kind:
    """One block wired otherwise."""
    return at(
        lambda base, block: (w := wiring(base)) is not None and base.rewire(base.blocks[block], w)
    )


def all_wired(wiring: Callable[[Base], Wiring | None]) -> Kind:
    return whole(
        lambda base: (
            (w := wiring(base)) is not None
            and [base.rewire(block, w) for block in base.blocks]
            and None
        )
    )


def joined(first: Join, second: Join) -> Wiring:
    return lambda x, of: second(first(x, of.attention, of.norms[0]), of.feed_forward, of.norms[1])


def both(join: Join) -> Callable[[Base], Wiring]:
    return lambda base: joined(join, join)


def first(join: Join) -> Callable[[Base], Wiring]:
    return lambda base: joined(join, USUAL[base.wiring])


def second(join: Join) -> Callable[[Base], Wiring]:
    return lambda base: joined(USUAL[base.wiring], join)


def around(change: Callable[[Base, Map, Map], tuple[Map, Map]]) -> Callable[[Base], Wiring]:
    """The base's own wiring of a changed attention and a changed feed-forward."""

    def wiring(base: Base) -> Wiring:
        def block(x: Tensor, of: Parts) -> Tensor:
            attention, feed_forward = change(base, of.attention, of.feed_forward)
            return base.wiring(
                x, Parts(attention=attention, feed_forward=feed_forward, norms=of.norms)
            )

        return block

    return wiring


def only_pre(wiring: Callable[[Base], Wiring]) -> Callable[[Base], Wiring | None]:
    return lambda base: wiring(base) if base.is_pre else None


def only_post(wiring: Callable[[Base], Wiring]) -> Callable[[Base], Wiring | None]:
    return lambda base: None if base.is_pre else wiring(base)


def input_of_block(x: Tensor, of: Parts) -> Tensor:
    a = x + of.attention(of.norms[0](x))
    return x + of.feed_forward(of.norms[1](a))


def parallel(x: Tensor, of: Parts) -> Tensor:
    return x + of.attention(of.norms[0](x)) + of.feed_forward(of.norms[1](x))


def swapped(base: Base) -> Wiring:
    join = USUAL[base.wiring]
    return lambda x, of: join(join(x, of.feed_forward, of.norms[1]), of.attention, of.norms[0])


def with_norms(make: Callable[[], nn.Module]) -> Callable[[Base], object]:
    def mutate(base: Base) -> None:
        for block in base.blocks:
            for name in base.norms(block):
                block.set_submodule(name, make())

    return mutate


class Over(nn.Module):
    """A LayerNorm by hand over the given dimensions."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims
        self.gain, self.shift = nn.Parameter(torch.ones(32)), nn.Parameter(torch.zeros(32))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.var(self.dims, keepdim=True, correction=0)
        return (x - x.mean(self.dims, keepdim=True)) * torch.rsqrt(
            variance + 1e-5
        ) * self.gain + self.shift


def final(base: Base, module: nn.Module) -> None:
    setattr(*base.final, module)


def drop_final(base: Base) -> object:
    return base.is_pre and final(base, nn.Identity())


def double_final(base: Base) -> object:
    """Behind Pre-LN's own norm another one, and one behind Post-LN's last block."""
    if base.is_pre:
        return final(base, nn.Sequential(getattr(*base.final), nn.LayerNorm(32)))
    last = base.blocks[-1]
    extra = nn.LayerNorm(32)
    last.add_module("extra", extra)
    return base.rewire(last, lambda x, of: extra(base.wiring(x, of)))


def weights(base: Base) -> list[nn.Parameter]:
    return [p for p in base.blocks.parameters() if p.ndim > 1]


def filled(some: Iterable[Tensor], value: float) -> None:
    for one in some:
        nn.init.constant_(one, value)


def scaled(some: Iterable[Tensor], factor: float) -> None:
    with torch.no_grad():
        for one in some:
            one.mul_(factor)


def outputs(base: Base) -> list[Tensor]:
    return [
        w.weight
        for b in base.blocks
        for w in (base.attention(b)["output"], base.feed_forward(b)[1])
    ]


def gains(base: Base) -> list[Tensor]:
    return [base.norm(block, place).weight for block in range(BLOCKS) for place in (0, 1)]


def beta(base: Base, power: float) -> object:
    if base.wiring is not deepnorm:
        return False
    shrunk = [*outputs(base), *(base.feed_forward(b)[0].weight for b in base.blocks)]
    return scaled([*shrunk, *(base.attention(b)["value"].weight for b in base.blocks)], BETA**power)


def tied(base: Base) -> None:
    nn.init.normal_(base.embedding.weight)
    base.head.weight = base.embedding.weight


def positions_small(base: Base) -> object:
    if base.positions is None:
        return False
    nn.init.normal_(base.positions.weight)
    nn.init.normal_(base.embedding.weight, std=0.02)
    return None


def epsilon(base: Base) -> None:
    for module in base.model.modules():
        for name in ("eps", "variance_epsilon"):
            if hasattr(module, name):
                setattr(module, name, 1e-2)


def drop_embedding_norm(base: Base) -> object:
    norms = ("embeddings.LayerNorm", "layernorm_embedding")
    found = [path for path, _ in base.model.named_modules() if path.endswith(norms)]
    for path in found:
        base.model.set_submodule(path, nn.Identity())
    return bool(found) and None


def shared_norm(x: Tensor, of: Parts) -> Tensor:
    return pre(
        x,
        Parts(
            attention=of.attention, feed_forward=of.feed_forward, norms=(of.norms[0], of.norms[0])
        ),
    )


def own_attention(
    base: Base, change: Callable[[OwnAttention], object], block: int | None = None
) -> object:
    """Changes the attention of our own models; False in the others."""
    found = [getattr(one, "attention", None) for one in base.blocks]
    if not all(isinstance(one, OwnAttention) for one in found):
        return False
    for number, one in enumerate(found):
        if block in (None, number):
            change(one)
    return None


def set_scaling(base: Base, power: float) -> None:
    for module in base.blocks.modules():
        if hasattr(module, "scaling"):
            module.scaling *= (32 // 4) ** power


def optimised(
    *, decay: Callable[[str, nn.Parameter, bool], float | None], sgd: bool = False
) -> Kind:
    """With an optimiser that decays as the function says of a name, a parameter, and whether it is
    of the block.

    None leaves a parameter out.
    """

    def mutate(base: Base, block: int) -> None:
        inside = {id(p) for p in base.blocks[block].parameters()}
        groups: dict[float, list[nn.Parameter]] = {}
        for name, p in base.model.named_parameters():
            amount = decay(name, p, id(p) in inside)
            if amount is not None:
                groups.setdefault(amount, []).append(p)
        made = [{"params": some, "weight_decay": amount} for amount, some in groups.items()]
        base.optimizer = (torch.optim.SGD if sgd else torch.optim.AdamW)(made, lr=1e-3)

    return at(mutate)


def everywhere(kind: Kind) -> Kind:
    return replace(kind, at_block=False)


def by_shape(p: nn.Parameter) -> float:
    return 0.1 if p.ndim > 1 else 0.0


def clipped(base: Base) -> None:
    optimised(decay=lambda name, p, inside: 0.0, sgd=True).mutate(base, 0)
    base.clip_norm = 1e-6


def share_all(base: Base) -> None:
    for block in range(1, BLOCKS):
        base.blocks[block] = base.blocks[0]


def copy_all(base: Base) -> None:
    for block in base.blocks[1:]:
        block.load_state_dict(base.blocks[0].state_dict())


def repeat_positions(base: Base) -> object:
    if base.positions is None:
        return False
    table = base.positions

    def block(x: Tensor, of: Parts) -> Tensor:
        return base.wiring(x + table(torch.arange(x.shape[1])), of)

    return [base.rewire(one, block) for one in base.blocks] and None


def in_bfloat(base: Base, block: int) -> None:
    """The feed-forward of one block."""
    for name, module in base.blocks[block].named_modules():
        if isinstance(module, nn.Linear) and not re.search("att|cross", name):
            module.bfloat16()
    half = around(lambda base, a, f: (a, lambda x: f(x.bfloat16()).float()))
    base.rewire(base.blocks[block], half(base))


def no_checkpoint(f: Map) -> Map:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            return f(x)

    return run


def padded(base: Base, inverted: bool) -> object:
    if base.is_pre or base.loss is not None:
        return False
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    base.inputs = {**base.inputs, "attention_mask": mask}
    if inverted:
        bert = base.model.bert
        usual = bert.forward
        bert.forward = lambda *a, attention_mask=None, **k: usual(
            *a, attention_mask=1 - attention_mask, **k
        )
    return None


F = functional
KINDS: dict[str, Kind] = {
    "final norm: dropped": whole(drop_final),
    "final norm: doubled": whole(double_final),
    "final norm: twice in every block": all_wired(
        lambda base: joined(
            *[lambda x, f, norm: x + f(norm(norm(x)))] * 2
            if base.is_pre
            else [lambda x, f, norm: norm(norm(x + f(x)))] * 2
        )
    ),
    "block: Post-LN": wired(only_pre(lambda base: post)),
    "block: Pre-LN": wired(only_post(lambda base: pre)),
    "block: Sandwich": wired(both(lambda x, f, norm: x + norm(f(norm(x))))),
    "block: un-normed feed-forward": wired(second(lambda x, f, norm: x + f(x))),
    "block: norm on the branch": wired(both(lambda x, f, norm: x + norm(f(x)))),
    "block: first norm gone": wired(first(lambda x, f, norm: x + f(x))),
    "block: skip from the normed x": wired(
        only_pre(first(lambda x, f, norm: (y := norm(x)) + f(y)))
    ),
    "block: feed-forward's residual is the block's input": wired(
        only_pre(lambda base: input_of_block)
    ),
    "block: parallel": wired(only_pre(lambda base: parallel)),
    "block: x = 2x + F": wired(only_pre(first(lambda x, f, norm: 2 * x + f(norm(x))))),
    "block: branch subtracted": wired(around(lambda base, a, f: (lambda x: -a(x), f))),
    "block: called twice": wired(lambda base: lambda x, of: base.wiring(base.wiring(x, of), of)),
    "block: a sub-layer called twice": wired(
        lambda base: lambda x, of: base.wiring(USUAL[base.wiring](x, of.attention, of.norms[0]), of)
    ),
    "block: a branch of its branch": wired(around(lambda base, a, f: (a, lambda x: f(f(x))))),
    "block: attention left out": wired(
        lambda base: lambda x, of: USUAL[base.wiring](x, of.feed_forward, of.norms[1])
    ),
    "block: half of the sum": wired(only_pre(first(lambda x, f, norm: (x + f(norm(x))) / 2))),
    "block: feed-forward before attention": wired(swapped),
    "residual: attention's": wired(first(lambda x, f, norm: norm(f(x)))),
    "residual: feed-forward's": wired(second(lambda x, f, norm: f(norm(x)))),
    "scale: 2x in all": all_wired(only_pre(both(lambda x, f, norm: 2 * x + f(norm(x))))),
    "scale: half of the sum in all": all_wired(
        only_pre(both(lambda x, f, norm: (x + f(norm(x))) / 2))
    ),
    "scale: 1/√(2L) twice": whole(
        lambda base: (
            base.is_pre
            and base.positions is not None
            and scaled(outputs(base), (2 * BLOCKS) ** -0.5)
        )
    ),
    "scale: α of another depth": all_wired(
        lambda base: (
            both(lambda x, f, norm: norm(48**0.25 * x + f(x)))(base)
            if base.wiring is deepnorm
            else None
        )
    ),
    "scale: α on the branch": all_wired(
        lambda base: (
            both(lambda x, f, norm: norm(x + ALPHA * f(x)))(base)
            if base.wiring is deepnorm
            else None
        )
    ),
    "scale: 1/β": whole(lambda base: beta(base, -2)),
    "scale: no β": whole(lambda base: beta(base, -1)),
    "weights: all 0.5": whole(lambda base: filled(weights(base), 0.5)),
    "weights: tied N(0, 1)": whole(tied),
    "weights: head times 64": whole(lambda base: scaled([base.head.weight], 64)),
    "weights: embedding times 512": whole(lambda base: scaled([base.embedding.weight], 512)),
    "weights: a feed-forward times 10": at(
        lambda base, block: scaled([w.weight for w in base.feed_forward(base.blocks[block])], 10)
    ),
    "weights: an output times 100": at(
        lambda base, block: scaled([base.attention(base.blocks[block])["output"].weight], 100)
    ),
    "weights: a block at deviation 1": at(
        lambda base, block: (
            [nn.init.normal_(p) for p in base.blocks[block].parameters() if p.ndim > 1] and None
        )
    ),
    "weights: all gains 2": whole(lambda base: filled(gains(base), 2.0)),
    "weights: a gain times 100": at(lambda base, block: scaled([base.norm(block, 0).weight], 100)),
    "weights: positions of N(0, 1)": whole(positions_small),
    "norm: ε of 1e-2": whole(epsilon),
    "norm: a gain 0": at(lambda base, block: filled([base.norm(block, 1).weight], 0.0)),
    "norm: gains 0": whole(lambda base: filled(gains(base), 0.0)),
    "norm: over the sequence": whole(with_norms(lambda: Over(1))),
    "norm: over the batch": whole(with_norms(lambda: Over(0))),
    "norm: over tokens and features": whole(with_norms(lambda: Over(1, 2))),
    "norm: one for both sub-layers": all_wired(only_pre(lambda base: shared_norm)),
    "norm: the embedding's gone": whole(drop_embedding_norm),
    "attention: norm on q alone": whole(
        lambda base: own_attention(base, lambda one: setattr(one, "of_queries", nn.LayerNorm(8)))
    ),
    "attention: no 1/√d": whole(lambda base: set_scaling(base, 0.5)),
    "attention: times √d": whole(lambda base: set_scaling(base, 1.0)),
    "attention: saturated": whole(
        lambda base: scaled(
            [base.attention(b)[w].weight for b in base.blocks for w in ("query", "key")], 100
        )
    ),
    "attention: softmax over queries": whole(
        lambda base: own_attention(base, lambda one: setattr(one, "axis", -2))
    ),
    "attention: softmax over the batch": whole(
        lambda base: own_attention(base, lambda one: setattr(one, "axis", 0))
    ),
    "gradient: a branch detached": wired(around(lambda base, a, f: (lambda x: a(x).detach(), f))),
    "gradient: the stream detached": wired(lambda base: lambda x, of: base.wiring(x.detach(), of)),
    "gradient: all skips detached": all_wired(
        lambda base: joined(
            *[lambda x, f, norm: x.detach() + f(norm(x))] * 2
            if base.is_pre
            else [lambda x, f, norm: norm(x.detach() + f(x))] * 2
        )
    ),
    "gradient: a branch without it": wired(around(lambda base, a, f: (a, no_checkpoint(f)))),
    "gradient: norms frozen": whole(
        lambda base: (
            [base.norm(b, place).requires_grad_(False) for b in range(BLOCKS) for place in (0, 1)]
            and None
        )
    ),
    "gradient: a block frozen": at(
        lambda base, block: base.blocks[block].requires_grad_(False) and None
    ),
    "optimiser: clip with SGD": whole(clipped),
    "optimiser: decay on norms": everywhere(optimised(decay=lambda name, p, inside: 0.1)),
    "optimiser: norms left out": everywhere(
        optimised(decay=lambda name, p, inside: None if "norm" in name.lower() else by_shape(p))
    ),
    "optimiser: a block left out": optimised(
        decay=lambda name, p, inside: None if inside else by_shape(p)
    ),
    "optimiser: decay leaves a block out": optimised(
        decay=lambda name, p, inside: 0.0 if inside else by_shape(p)
    ),
    "mask: causal one missing": whole(
        lambda base: own_attention(base, lambda one: setattr(one, "masks", "nothing"))
    ),
    "mask: missing in a block": at(
        lambda base, block: own_attention(base, lambda one: setattr(one, "masks", "nothing"), block)
    ),
    "mask: inverted": whole(
        lambda base: own_attention(base, lambda one: setattr(one, "masks", "earlier"))
    ),
    "mask: padding inverted": whole(lambda base: padded(base, True)),
    "other: a NaN weight": at(
        lambda base, block: filled(
            [base.feed_forward(base.blocks[block])[0].weight[0, :1]], math.nan
        )
    ),
    "other: a block skipped": wired(lambda base: lambda x, of: x),
    "other: a feed-forward dead by its bias": at(
        lambda base, block: (
            filled([b], -100.0)
            if (b := base.feed_forward(base.blocks[block])[0].bias) is not None
            else False
        )
    ),
    "other: one block in all places": whole(share_all),
    "other: blocks copied": whole(copy_all),
    "other: fewer blocks than configured": whole(lambda base: base.blocks.pop(2) and None),
    "other: positions in every block": whole(repeat_positions),
    "other: dropout always on": wired(
        lambda base: lambda x, of: F.dropout(base.wiring(x, of), 0.1)
    ),
    "other: a block in bfloat16": at(in_bfloat),
}


def diagnosed(base: Base) -> tuple[Finding, ...]:
    return diagnose(
        base.model,
        base.inputs,
        loss=base.loss,
        optimizer=base.optimizer or "adam",
        clip_norm=base.clip_norm,
        advise=False,
    ).findings


def drawn(base: str) -> Base:
    torch.manual_seed(0)
    return BASES[base]()


def mutant(kind: str, base: str) -> tuple[Base, int] | None:
    """The base with the fault, and the block, counted from 0, that it is in; None where this base
    cannot have it.
    """
    block = random.Random(f"{kind} {base}").randrange(BLOCKS)
    made = drawn(base)
    return None if KINDS[kind].mutate(made, block) is False else (made, block)


def names(finding: Finding, block: int) -> bool:
    """Whether a finding names a block, counted from 0: by its number or by its path."""
    numbers = {
        number
        for low, high in re.findall(r"blocks? (\d+)(?:-(\d+))?", finding.message)
        for number in range(int(low), int(high or low) + 1)
    }
    return block + 1 in numbers or bool(
        re.search(rf"(blocks|layers?)\.{block}(?!\d)", f"{finding.where} {finding.message}")
    )


def outcome(kind: str, base: str) -> str:
    """found, found elsewhere (another block), info, nothing, or n/a, and the rules that spoke."""
    made = mutant(kind, base)
    if made is None:
        return "n/a"
    findings = diagnosed(made[0])
    loud = [one for one in findings if one.severity.value != "info"]
    rules = ", ".join(dict.fromkeys(one.id for one in loud or findings))
    if not loud:
        return f"info: {rules}" if findings else "nothing"
    if KINDS[kind].at_block and not any(names(one, made[1]) for one in loud):
        return f"elsewhere: {rules}"
    return f"found: {rules}"


def table(words: Iterable[str]) -> None:
    """A line for each mutant, and the shares at the end."""
    torch.set_num_threads(1)
    for base in BASES:
        print(
            f"{base}: twin",
            [(one.severity.value, one.id) for one in diagnosed(drawn(base))],
            flush=True,
        )
    chosen = [kind for kind in KINDS if all(word in kind for word in words)]
    seen = []
    for kind in chosen:
        for base in BASES:
            try:
                said = outcome(kind, base)
            except Exception as error:
                said = f"raised: {type(error).__name__}: {str(error)[:150]}"
            if said != "n/a":
                seen.append(said)
                print(f"{kind} | {base} | {said}", flush=True)
    print(
        {
            what: sum(one.startswith(what) for one in seen)
            for what in ("found", "elsewhere", "info", "nothing", "raised")
        }
    )


if __name__ == "__main__":
    table(sys.argv[1:])
