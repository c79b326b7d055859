"""Faults around the blocks: heads, adapters, optimisers, losses."""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault, next_token
from doctor.waves.parts import WIDTH, Attention, Decoder, tokens


class Tied(Decoder):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embedding.weight


class WideTied(Tied):
    """A tied table at N(0, 1): logits start with a deviation of √width."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.normal_(self.embedding.weight)


class DetachedHead(Tied):
    """The output reads the table without its gradient."""

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.head.weight.detach())


class SaidToBeTied(Decoder):
    """The table was copied into the head, and the configuration says that they are one."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=True)
        self.head.weight.data = self.embedding.weight.data.clone()


class TiedAsSaid(Tied):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=True)


class Adapter(nn.Module):
    """LoRA (Hu et al. 2021)."""

    SCALE = 2.0

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.first = nn.Parameter(torch.randn(4, inner.in_features) / math.sqrt(4))
        self.second = nn.Parameter(torch.zeros(inner.out_features, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x @ self.first.mT @ self.second.mT * self.SCALE


class ScaledByZero(Adapter):
    """An alpha of 0 over its rank."""

    SCALE = 0.0


class Bottleneck(nn.Module):
    """An adapter behind a feed-forward (Houlsby et al. 2019)."""

    def __init__(self, inner: nn.Module, start: float) -> None:
        super().__init__()
        self.inner, self.shrink, self.widen = inner, nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)
        nn.init.normal_(self.widen.weight, std=start)
        nn.init.zeros_(self.widen.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return y + self.widen(functional.gelu(self.shrink(y)))


def adapted(
    adapter: type[Adapter] = Adapter, trained: Callable[[str], bool] = lambda name: True
) -> Case:
    """Adapters on queries and values. trained: of a parameter of theirs, or of what is adapted."""
    model = Decoder()
    for weight in model.parameters():
        weight.requires_grad_(False)
    for block in model.blocks:
        block.mixer.q, block.mixer.v = adapter(block.mixer.q), adapter(block.mixer.v)
    for name, weight in model.named_parameters():
        of_adapter = name.endswith((".first", ".second"))
        weight.requires_grad_(of_adapter and trained(name))
    return Case(model=model)


def base_trained_too() -> Case:
    """The adapted matrices, and those alone, are trained beside their adapters."""
    case = adapted()
    for name, weight in case.model.named_parameters():
        if ".inner." in name:
            weight.requires_grad_(True)
    return case


def bottlenecks(start: float) -> Case:
    model = Decoder()
    for weight in model.parameters():
        weight.requires_grad_(False)
    for block in model.blocks:
        block.feed_forward = Bottleneck(block.feed_forward, start)
    return Case(model=model)


class Ahead(Decoder):
    """Beside the next token, the one after it is predicted from both (DeepSeek-V3): a second norm
    and matrix over the output and the next token's embedding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.joins = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.joined_norm, self.ahead_norm = nn.RMSNorm(2 * WIDTH), nn.RMSNorm(WIDTH)

    def joined(self, hidden: Tensor, ids: Tensor) -> Tensor:
        following = self.embedding(ids.roll(-1, 1))
        joined = self.joins(self.joined_norm(torch.cat([hidden, following], -1)))
        return self.ahead_norm(hidden + joined)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        hidden = self.hidden(ids)
        ahead = self.joined(hidden, ids)
        return {"logits": self.logits(hidden), "ahead": self.logits(ahead)}


class Overwritten(Ahead):
    """The main logits are made of what knows the next token."""

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        hidden = self.joined(self.hidden(ids), ids)
        return {"logits": self.logits(hidden), "ahead": self.logits(hidden)}


def both_losses(ids: Tensor, *, second: int) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """second: how many places later the second head's targets stand."""

    def loss(output: Mapping[str, Tensor]) -> Tensor:
        main = next_token(ids)(output["logits"])
        ahead = output["ahead"][:, : -(second + 1)].flatten(0, 1)
        targets = ids[:, second : ids.shape[1] - 1].flatten()
        return main + 0.3 * functional.cross_entropy(ahead, targets)

    return loss


def two_heads(model: nn.Module, second: int) -> Case:
    return Case(model=model, loss=both_losses(tokens(), second=second))


class WidthOfMuP(Attention):
    """µP divides products by the width of a head, and not by its root."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return super().weights(q / 4, k)


def rates_by_width(of_hidden: float) -> Case:
    """Adam under µP, in groups: hidden matrices have the rate over the width's factor."""
    model = Decoder()
    hidden = [w for n, w in model.named_parameters() if n.startswith("blocks") and w.dim() > 1]
    mine = {id(weight) for weight in hidden}
    rest = [weight for weight in model.parameters() if id(weight) not in mine]
    groups = [{"params": hidden, "lr": 1e-2 * of_hidden}, {"params": rest, "lr": 1e-2}]
    return Case(model=model, options={"optimizer": torch.optim.AdamW(groups, weight_decay=0.0)})


def optimised(
    make: Callable[[nn.Module], torch.optim.Optimizer], change: str = "float"
) -> Callable[[], Case]:
    def case() -> Case:
        model: Any = getattr(Decoder(), change)()
        return Case(model=model, options={"optimizer": make(model)})

    return case


def adam(**options: Any) -> Callable[[nn.Module], torch.optim.Optimizer]:
    usual = {"lr": 1e-3, "weight_decay": 0.0}
    return lambda model: torch.optim.AdamW(model.parameters(), **(usual | options))


def with_loss(loss: Callable[[Tensor], Tensor], ids: Tensor | None = None) -> Case:
    ids = tokens() if ids is None else ids
    return Case(model=Decoder(), inputs=(ids,), loss=loss)


def shifted_twice() -> Case:
    """The data shift labels by one, and the loss does once more."""
    targets = tokens()[:, 2:].flatten()
    return with_loss(lambda x: functional.cross_entropy(x[:, :-2].flatten(0, 1), targets))


def padded() -> Tensor:
    ids = tokens().clone()
    ids[:, 10:] = 0
    return ids


def padding_counted() -> Case:
    return with_loss(next_token(padded()), padded())


def padding_ignored() -> Case:
    targets = padded()[:, 1:].flatten()

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets, ignore_index=0)

    return with_loss(loss, padded())


def healthy() -> Case:
    return Case(model=Decoder())


def of_model(title: str, bug: Callable[[], nn.Module], says: str, twin: Any = Decoder) -> Fault:
    return Fault(
        title=title, bug=lambda: Case(model=bug()), twin=lambda: Case(model=twin()), says=says
    )


def of_adapter(title: str, bug: Callable[[], Case], says: str) -> Fault:
    return Fault(title=title, bug=bug, twin=adapted, says=says)


FAULTS = [
    of_model("a tied table at N(0, 1)", WideTied, r"embedding|chance|logits", Tied),
    of_model("a tied head that is detached", DetachedHead, r"head|detach|output matrix", Tied),
    of_model("a head that is a copy", SaidToBeTied, r"tie", TiedAsSaid),
    of_adapter(
        "an adapter of which one factor is trained",
        lambda: adapted(trained=lambda name: name.endswith(".first")),
        r"adapter|second|factor",
    ),
    of_adapter("an adapter times 0", lambda: adapted(ScaledByZero), r"adapter|first|second"),
    of_adapter("adapted matrices are trained too", base_trained_too, r"adapt.*(frozen|trained)"),
    Fault(
        title="a bottleneck that starts open",
        bug=lambda: bottlenecks(1.0),
        twin=lambda: bottlenecks(0.0),
        says=r"adapter|widen|open",
    ),
    Fault(
        title="two heads for one target",
        bug=lambda: two_heads(Ahead(), second=1),
        twin=lambda: two_heads(Ahead(), second=2),
        says=r"target|ahead|later|knows?",
    ),
    Fault(
        title="the main head reads the next token",
        bug=lambda: two_heads(Overwritten(), second=2),
        twin=lambda: two_heads(Ahead(), second=2),
        says=r"ahead|later|knows?|predict",
    ),
    Fault(
        title="a rate that is multiplied by the width",
        bug=lambda: rates_by_width(WIDTH),
        twin=lambda: rates_by_width(1 / 4),
        says=r"rate",
    ),
    Fault(
        title="float16 weights, and an ε below its least number",
        bug=optimised(adam(eps=1e-8), "half"),
        twin=optimised(adam(eps=1e-4), "half"),
        says=r"ε|epsilon|eps|not finite|infinite|NaN",
    ),
    Fault(
        title="labels are shifted twice",
        bug=shifted_twice,
        twin=healthy,
        says=r"target|label|shift",
    ),
]
