"""Admin: Post-LN whose skip is weighed, feature by feature, by as much as the branches before it add."""

import math
from collections.abc import Mapping, Sequence

from ..base import Norms, Placement, Profiling, StackShape, Sublayer, Value
from ..registry import register


@register
class Admin(Placement):
    """x ← LN(skip_scale · x + F(x)), skip_scale a trainable vector set from one profiled batch.

    Liu et al. 2020, section 4 (there: ω_i): skip_scale_i = √(Σ_{j<i} Var F_j), the sum over the sub-layers before it in
    its stack, encoder and decoder each on their own. Every variance is over all elements of a branch, measured in one
    forward pass in which all scales are 1; we measure it without dropout, of which the paper does not speak. The first
    scale of a stack is 1, as in the authors' code: the sum over nothing would take the embedding out of the stream.
    The authors' code computes another sum, which is `admin-clinic`.
    """

    name = "admin"
    title = "Admin"
    gist = "Post-LN, skip scaled by a profiled batch"
    citation = "Liu et al. 2020, arXiv:2004.08249, section 4"
    year = 2020

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,)) * x + sublayer(x))

    def profiled(self, branch_variances: Sequence[float], input_variance: float) -> Mapping[str, float]:
        return {"skip_scale": math.sqrt(math.fsum(branch_variances))}


@register
class AdminClinic(Admin):
    """As `admin`, with skip_scale²_i = Var x_0 + Σ_{j<i} Var F_j: the variance of the embedding x_0 counts as well.

    The authors' code (Transformer-Clinic, `fairseq/modules/transformer_layer.py`), where the paper has the sum of
    branches alone. It walks the stack once in order, so that a branch is measured with all the scales before it in
    place, and measures with dropout on, which makes every variance larger by 1 / (1 - dropout).
    """

    name = "admin-clinic"
    title = "Admin, as its code"
    gist = "admin, the embedding's variance counted too"
    variant_of = "admin"
    profiling = Profiling(in_order=True, dropout=True)

    def profiled(self, branch_variances: Sequence[float], input_variance: float) -> Mapping[str, float]:
        return {"skip_scale": math.sqrt(input_variance + math.fsum(branch_variances))}


@register
class AdminLogN(Placement):
    """x ← LN(skip_scale · x + F(x)), skip_scale² = (n + 1) / ln(n + 1) - 1 for n sub-layers of the stack; not trained.

    admin-torch, `O(log n)`: no batch to profile. It counts residual layers, 2 a block; a decoder's cross-attention is
    a third.
    """

    name = "admin-log-n"
    title = "Admin, O(log n)"
    gist = "Post-LN, skip scaled by about √(n / ln n)"
    citation = "Liu 2022, admin-torch (github.com/microsoft/admin-torch), after arXiv:2004.08249"
    year = 2022
    variant_of = "admin"

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        self.skip_scale = math.sqrt(self.squared_scale(stack.sublayers))

    def squared_scale(self, sublayers: int) -> float:
        return (sublayers + 1) / math.log(sublayers + 1) - 1

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(self.skip_scale * x + sublayer(x))


@register
class AdminConstant(AdminLogN):
    """As `admin-log-n`, skip_scale² = n (`O(1)`): a stack's output moves as much as that of one sub-layer."""

    name = "admin-constant"
    title = "Admin, O(1)"
    gist = "Post-LN, skip scaled by √(sub-layers)"

    def squared_scale(self, sublayers: int) -> float:
        return float(sublayers)
