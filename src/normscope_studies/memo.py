"""The claims of a memo on the stability of deep Transformers, each in a row beside what the results
of the studies say of it.
"""

from pathlib import Path

from .engine.listing_study import ListConfig, ListedText
from .engine.study import Study, scales

MEMO = ListedText(
    file=Path(__file__).with_name("memo.toml"),
    source=(
        "a memo on pre-LN and post-LN, which reads Xiong et al. 2020 (arXiv:2002.04745), Liu et "
        "al. 2020 (arXiv:2004.08249), Bachlechner et al. 2020 (arXiv:2003.04887) and Wang et al. "
        "2022 (arXiv:2203.00555)"
    ),
    heading="""# The memo's claims, one by one

Made by `normscope study memo` from the data of the other studies. What no result here has is not \
run, and has its command. The verdict is of what was tested, which may be less than what is \
claimed, and says how far off was allowed.""",
    groups={
        "the memo": "What the memo says",
        "its sources": "What it takes from its sources, as they state it",
        "open": "What it leaves open",
        "ours": "Corrections of ours",
    },
    example="amplification",
)

STUDY = Study(
    title="The memo's claims, one by one",
    question=(
        "What does a memo on the stability of Pre-LN and Post-LN claim and leave open; and what "
        "came of each claim and question when a study measured it?"
    ),
    help="What came of every claim of the memo?",
    scales=scales(ListConfig, smoke={"claims": 3}, paper={}),
    run=MEMO.run,
    planned=MEMO.planned,
)
