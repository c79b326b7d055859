"""The claims of the paper in one table, each in a row beside what the results of the studies say of
it.
"""

from pathlib import Path

from .engine.listing_study import ListConfig, ListedText
from .engine.study import Study, scales

PAPER = ListedText(
    file=Path(__file__).with_name("paper.toml"),
    source="Xiong et al. 2020, arXiv:2002.04745; “corrected” is what its proofs bear",
    heading="""# The paper's claims, one by one

Made by `normscope study paper` from the data of the other studies. What no result here has is not \
run, and has its command. The verdict is of what was tested, which may be less than what is \
claimed, such as a direction where a number is published, and says how far off was allowed.""",
    groups={
        "the paper": "The paper's own claims",
        "ours": "Corrections of ours",
        "digests": "What summaries of the paper say",
    },
    example="theorem1",
)

STUDY = Study(
    title="The paper's claims, one by one",
    question=(
        "What does Xiong et al. 2020 claim, where, and with which value; and what came of each "
        "claim when a study measured it?"
    ),
    help="What came of every claim of the paper?",
    scales=scales(ListConfig, smoke={"claims": 3}, paper={}),
    run=PAPER.run,
    planned=PAPER.planned,
)
