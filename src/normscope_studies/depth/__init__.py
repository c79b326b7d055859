"""The size of the hidden state over a thousand blocks."""

from ..engine.discovery import About, Option


def _listed(names: str) -> dict[str, list[str]]:
    return {"placements": [name.strip() for name in names.split(",") if name.strip()]}


ABOUT = About(
    title="The hidden state over depth at initialisation",
    question="How large is the hidden state after every block, a thousand blocks deep, before any training: what "
    "grows, what stays, what falls?",
    help="How large is the hidden state, 1,000 blocks deep?",
    options=(
        Option(name="blocks", kind=int, help="Depth of the encoder.", sets=lambda blocks: {"blocks": blocks}),
        Option(
            name="width",
            kind=int,
            help="Width of the model; the feed-forward is four times as wide.",
            sets=lambda width: {"width": width, "ffn_width": 4 * width},
        ),
        Option(name="seeds", kind=int, help="Draws of the weights.", sets=lambda seeds: {"seeds": seeds}),
        Option(name="placements", kind=str, help="Comma-separated; without it all that have encoders.", sets=_listed),
        Option(
            name="initialisation",
            kind=str,
            help="as-placement, or one scheme for all, such as xavier-normal.",
            sets=lambda scheme: {"initialisation": scheme},
        ),
    ),
)
