"""What a placement asks of a loop that is not ours cannot be forgotten, and is what our own loop
does.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

import normscope
from normscope import AdaptiveConfig, Decoder, Encoder
from normscope.model import Context, EncoderConfig, Layout, MaskedEncoder, profile as profile_packed
from normscope.optim import adaptive_value

SIZES = {"width": 8, "heads": 2, "ffn_width": 12, "blocks": 2}


def batch(seed: int = 0) -> Tensor:
    return torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(seed))


def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    (model(batch()) - batch(1)).square().mean().backward()
    optimizer.step()


class TestAdmin:
    def test_refuses_to_run_before_it_is_profiled(self) -> None:
        encoder = Encoder("admin", **SIZES)
        for mode in (True, False):
            with pytest.raises(RuntimeError, match=r"normscope\.profile"):
                encoder.train(mode)(batch())
        normscope.profile(encoder, lambda: encoder(batch()))
        assert torch.isfinite(encoder(batch())).all()

    @pytest.mark.parametrize("placement", ["admin", "admin-clinic"])
    def test_takes_the_values_of_the_packed_model_and_leaves_padding_out(
        self, placement: str
    ) -> None:
        padding = torch.tensor([[0, 0, 0, 1, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
        encoder = Encoder(placement, **SIZES)
        twin = copy.deepcopy(encoder)
        normscope.profile(encoder, lambda: encoder(batch(), padding_mask=padding))
        config = EncoderConfig(
            placement=placement,
            activation="relu",
            dropout=0.0,
            attention_dropout=0.0,
            positions=5,
            **SIZES,
        )
        packed = MaskedEncoder(config, 9)
        packed.encoder.load_state_dict(twin.stack.state_dict())
        layout = Layout((~padding).sum(1))
        context = Context(layout=layout)
        profile_packed(packed.encoder, lambda: packed.encoder(batch()[~padding], context))
        for ours, theirs in zip(encoder.stack.sublayers(), packed.encoder.sublayers(), strict=True):
            assert torch.equal(ours.placed["skip_scale"], theirs.placed["skip_scale"])
        assert ours.placed["skip_scale"][0] != 1

    def test_a_checkpoint_keeps_that_it_was(self) -> None:
        fresh, profiled = Encoder("admin", **SIZES), Encoder("admin", **SIZES)
        normscope.profile(profiled, lambda: profiled(batch()))
        other = Encoder("admin", **SIZES)
        other.load_state_dict(profiled.state_dict())
        assert torch.equal(other(batch()), profiled(batch()))
        other.load_state_dict(fresh.state_dict())
        with pytest.raises(RuntimeError, match="profile"):
            other(batch())

    def test_learned_values_are_not_profiled_again(self) -> None:
        encoder = Encoder("admin", **SIZES)
        normscope.profile(encoder, lambda: encoder(batch()))
        with torch.no_grad():
            encoder.stack.blocks[1].attention.placed["skip_scale"].add_(1.0)
        resumed = nn.ModuleList([Encoder("admin", **SIZES), Encoder("admin", **SIZES)])
        resumed[0].load_state_dict(encoder.state_dict())
        normscope.profile(resumed, lambda: resumed[1](resumed[0](batch())))
        learned, fresh = (model.stack.blocks[1].attention.placed["skip_scale"] for model in resumed)
        assert torch.equal(learned, encoder.stack.blocks[1].attention.placed["skip_scale"])
        assert not torch.equal(fresh, torch.ones(8))

    def test_within_a_model_of_the_users(self) -> None:
        model = nn.Sequential(nn.Linear(8, 8), Encoder("admin", **SIZES), nn.Linear(8, 2))
        normscope.profile(model, lambda: model(batch()))
        assert model(batch()).shape == (3, 5, 2)

    def test_a_pass_that_does_not_reach_it_is_refused(self) -> None:
        encoder = Encoder("admin", **SIZES)
        with pytest.raises(ValueError, match="saw 0 of them"):
            normscope.profile(encoder, lambda: None)
        with pytest.raises(RuntimeError, match="profile"):
            encoder(batch())

    def test_others_are_left_alone(self) -> None:
        encoder = Encoder("pre-ln", **SIZES)
        before = copy.deepcopy(encoder.state_dict())
        normscope.profile(encoder, lambda: pytest.fail("there is nothing to profile"))
        after = encoder.state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(value, before[name]) for name, value in after.items())


class TestNGPT:
    def test_refuses_to_train_unattended_and_may_be_evaluated(self) -> None:
        encoder = Encoder("ngpt", **SIZES)
        with pytest.raises(RuntimeError, match=r"normscope\.attach"):
            encoder(batch())
        assert torch.isfinite(encoder.eval()(batch())).all()
        encoder.train()
        with torch.no_grad():
            encoder(batch())

    def test_stays_on_the_sphere(self) -> None:
        encoder = Encoder("ngpt", **SIZES)
        optimizer = torch.optim.Adam(encoder.parameters(), lr=0.1)
        normscope.attach(encoder, optimizer)
        before = encoder.stack.blocks[0].attention.f.query.weight.detach().clone()
        for _ in range(3):
            update(encoder, optimizer)
        query, output = (
            getattr(encoder.stack.blocks[0].attention.f, name).weight
            for name in ("query", "output")
        )
        assert not torch.allclose(query, before, atol=0.05)
        torch.testing.assert_close(query.norm(dim=1), torch.ones(8))
        torch.testing.assert_close(output.norm(dim=0), torch.ones(8))

    def test_a_copy_has_to_be_attached_anew(self) -> None:
        encoder = Encoder("ngpt", **SIZES)
        normscope.attach(encoder, torch.optim.SGD(encoder.parameters(), lr=0.1))
        with pytest.raises(RuntimeError, match="attach"):
            copy.deepcopy(encoder)(batch())


class TestSchedules:
    ADAPTIVE = AdaptiveConfig(start=0.1, end=0.9, over=4)

    @pytest.mark.parametrize("placement", ["branch-norm", "pre-to-post"])
    def test_refuses_to_train_without_one(self, placement: str) -> None:
        decoder = Decoder(placement, **SIZES)
        with pytest.raises(RuntimeError, match="follow a schedule"):
            decoder(batch())
        with pytest.raises(ValueError, match="AdaptiveConfig"):
            normscope.attach(decoder, torch.optim.SGD(decoder.parameters(), lr=0.1))

    def test_every_update_has_its_value_and_a_checkpoint_goes_on_from_there(self) -> None:
        def attached() -> tuple[Encoder, torch.optim.Optimizer]:
            encoder = Encoder("branch-norm", **SIZES)
            optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
            normscope.attach(encoder, optimizer, adaptive=self.ADAPTIVE)
            return encoder, optimizer

        encoder, optimizer = attached()
        for number in range(1, 4):
            value = encoder.stack.schedules.value("branch_scale").item()
            assert value == pytest.approx(adaptive_value(self.ADAPTIVE, number))
            update(encoder, optimizer)
        state = encoder.state_dict()
        # Loaded before the optimiser is attached, or after.
        early = Encoder("branch-norm", **SIZES)
        early.load_state_dict(state)
        early_optimizer = torch.optim.SGD(early.parameters(), lr=0.1)
        normscope.attach(early, early_optimizer, adaptive=self.ADAPTIVE)
        late, late_optimizer = attached()
        late.load_state_dict(state)
        for model, its in ((encoder, optimizer), (early, early_optimizer), (late, late_optimizer)):
            assert model.stack.schedules.value("branch_scale").item() == pytest.approx(0.9)
            update(model, its)
            assert int(model.updates) == 4

    def test_a_schedule_for_nothing_is_refused(self) -> None:
        encoder = Encoder("pre-ln", **SIZES)
        optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
        normscope.attach(encoder, optimizer)
        with pytest.raises(ValueError, match="no number"):
            normscope.attach(encoder, optimizer, adaptive=self.ADAPTIVE)

    def test_epochs_are_refused(self) -> None:
        encoder = Encoder("branch-norm", **SIZES)
        with pytest.raises(ValueError, match="number of updates"):
            normscope.attach(
                encoder,
                torch.optim.SGD(encoder.parameters(), lr=0.1),
                adaptive=AdaptiveConfig(over="2 epochs"),
            )

    def test_attaching_again_replaces_what_was_attached(self) -> None:
        encoder = Encoder("branch-norm", **SIZES)
        first = torch.optim.SGD(encoder.parameters(), lr=0.1)
        normscope.attach(encoder, first, adaptive=self.ADAPTIVE)
        normscope.attach(encoder, first, adaptive=self.ADAPTIVE)
        update(encoder, first)
        assert int(encoder.updates) == 1
