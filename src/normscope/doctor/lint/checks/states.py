"""A block that is treated otherwise than the others: frozen, in another dtype, or by the optimiser."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...result import Severity
from ..likes import OddState, odd_parameters, odd_precisions
from ..patient import Patient, an_optimizer, at_initialisation, listed, norm_parameters
from ..rule import Fault, rule

_FROZEN, _TRAINED = "frozen", "trained"


@rule(
    "frozen-unlike-others",
    Severity.WARNING,
    title="a block or norms that stay as they are drawn",
    why="A block that keeps its random weights among others that are trained adds noise that they must learn to bear, "
    "and a frozen gain is that of a norm without any. Of a trained model, freezing the lowest blocks is usual.",
    reference="Howard and Ruder 2018, arXiv:1801.06146, section 3.3, for freezing from below",
)
def frozen_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block that are frozen beside trained likes, or the other way round; and all norms' alone."""
    fresh = at_initialisation(patient)

    def from_below(states: Sequence[str]) -> bool:
        """Whether the lowest of a trained model are frozen, and no others."""
        return not fresh and list(states) == sorted(states)

    def state(_: str, weight: object) -> str:
        return _TRAINED if getattr(weight, "requires_grad", False) else _FROZEN

    odd = odd_parameters(patient.model, state, usual=from_below)
    yield from _by_block(
        odd,
        lambda state: f"{state} (requires_grad is {state == _TRAINED})",
        fix="set requires_grad alike in every block; where this is meant, silence the rule",
    )
    if not fresh or odd:
        return
    norms = norm_parameters(patient.model)
    frozen = [name for name, weight in norms.items() if not weight.requires_grad and weight.numel() > 1]
    others = [weight for name, weight in patient.model.named_parameters() if name not in norms]
    if len(frozen) > 2 and all(weight.requires_grad for weight in others):
        yield Fault(
            where=listed(frozen),
            message=f"{len(frozen)} of {len(norms)} gains and shifts of norms are frozen at their initial values, "
            f"while all {len(others)} other parameters are trained",
            fix="let norms be trained, by requires_grad_(True), or build them without parameters "
            "(elementwise_affine=False)",
        )


@rule(
    "precision-unlike-others",
    Severity.WARNING,
    title="a block in another precision",
    why="One block in half precision rounds what it adds, and its own weights' updates, as none of the others does; "
    "often a cast was left behind, or a conversion reached one module.",
    reference="Micikevicius et al. 2018, arXiv:1710.03740, section 3: weights are kept in float32",
)
def precision_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Blocks whose weights have another dtype than their likes, or that compute in another one."""
    weights = odd_parameters(patient.model, lambda _, weight: str(weight.dtype).removeprefix("torch."))
    fix = "let every block have one dtype, and leave mixed precision to torch.autocast"
    yield from _by_block(weights, lambda state: f"kept in {state}", fix=fix)
    told = {one.block for one in weights}
    for stack in patient.stacks:
        odd = [one for one in odd_precisions(stack) if one.block not in told]
        yield from _by_block(odd, lambda state: f"computed in {state}", fix=fix)


@rule(
    "optimizer-unlike-others",
    Severity.WARNING,
    title="a block that the optimiser treats otherwise",
    why="Groups that are made by name or by number leave a block out, which then stays at its random weights, or grows "
    "without the decay that keeps the others' weights in size.",
    reference="torch.optim: an optimiser changes what its param_groups hold, as each group says, and nothing else",
    needs=(an_optimizer,),
)
def optimizer_unlike_others(patient: Patient) -> Iterator[Fault]:
    """Weights of one block in no group, or decayed otherwise, beside likes that are held and decayed alike."""
    groups = patient.optimizer.param_groups if patient.optimizer is not None else []
    decays = {
        id(p): f"decayed by {float(group.get('weight_decay') or 0):g}" for group in groups for p in group["params"]
    }

    def state(_: str, weight: object) -> str:
        # What is frozen has no need of an optimiser.
        needs = getattr(weight, "requires_grad", False)
        return decays.get(id(weight), "in no parameter group" if needs else _FROZEN)

    odd = [one for one in odd_parameters(patient.model, state) if _FROZEN not in (one.state, one.usual)]
    yield from _by_block(odd, lambda state: state, fix="make the groups so that every block is in them alike")


def _by_block(odd: Iterable[OddState], said: Callable[[str], str], *, fix: str) -> Iterator[Fault]:
    """One fault for all weights of a block that are in one state."""
    groups: defaultdict[tuple[int, str, str], list[OddState]] = defaultdict(list)
    for one in odd:
        groups[one.block, one.state, one.usual].append(one)
    for (block, _, usual), some in sorted(groups.items()):
        one = some[0]
        rest = f", and so {'is' if len(some) == 2 else 'are'} {len(some) - 1} more of this block" if some[1:] else ""
        yield Fault(
            where=listed(one.name for one in some),
            message=f"block {block} of {one.likes}: {one.name} is {said(one.state)}{rest}, while most of its likes "
            f"in other blocks are {said(usual)}",
            fix=fix,
        )
