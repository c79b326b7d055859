"""Admin: Post-LN whose skip is weighed, feature by feature, by as much as the branches before it add."""

import math
from collections.abc import Mapping, Sequence

from ..base import Norms, Placement, StackShape, Sublayer, Value, register


@register
class Admin(Placement):
    """x ← LN(skip_scale · x + F(x)), skip_scale a trainable vector set from one profiled batch.

    Liu et al. 2020, section 4.2 (there: ω_i): 1 at the first sub-layer of a stack, then w²_{i+1} = w²_i + Var F_i, the
    variance over all elements of the branch, encoder and decoder each on their own. The stack is walked once in order,
    so that F_i is measured with all the scales before it in place, and without dropout.
    """

    name = "admin"
    title = "Admin"
    citation = "Liu et al. 2020, arXiv:2004.08249, section 4.2"
    year = 2020

    def join(self, x: Value, sublayer: Sublayer, norm: Norms) -> Value:
        return norm(sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,)) * x + sublayer(x))

    def profiled(self, branch_variances: Sequence[float], input_variance: float) -> Mapping[str, float]:
        return {"skip_scale": math.sqrt(1.0 + math.fsum(branch_variances))}


@register
class AdminClinic(Admin):
    """As `admin`, the variance of the embedding in place of the first 1: w²_2 = Var x_0 + Var F_1.

    The authors' code (Transformer-Clinic, `transformer_layer.py`), where the paper has the sum of branches alone.
    """

    name = "admin-clinic"
    title = "Admin, as its code"
    variant_of = "admin"

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

    def squared_scale(self, sublayers: int) -> float:
        return float(sublayers)
