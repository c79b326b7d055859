"""`python tests/fuzz`: change files at random and give them to their readers, for FUZZ_SECONDS, an
hour by default.

Goes on where the last one stopped: the numbers it has done lie in FUZZ_FOLDER, .fuzz by default.
FUZZ_READERS names some readers. Exit code 1 with findings.
"""

import json
import os
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def main() -> int:
    """Returns the exit code."""
    from fuzz.cases import Seeds, drawn
    from fuzz.readers import READERS
    from fuzz.trials import tried

    seconds = float(os.environ.get("FUZZ_SECONDS", "3600"))
    folder = Path(os.environ.get("FUZZ_FOLDER", ".fuzz")).resolve()
    names = os.environ.get("FUZZ_READERS", "").split() or list(READERS)
    seeds = Seeds(folder / "seeds")
    seeds.make(names)
    state_file, findings = folder / "state.json", folder / "findings.jsonl"
    state = json.loads(state_file.read_text()) if state_file.is_file() else {"cases": 0}
    counts: Counter[str] = Counter()
    per_round = sum(READERS[name].share for name in names)
    began = told = time.monotonic()
    with closing(tried(drawn(names, state["cases"] // per_round), seeds.attempt)) as outcomes:
        for outcome in outcomes:
            counts[outcome.verdict] += 1
            counts[f"{outcome.case.reader}: {outcome.verdict}"] += 1
            state["cases"] += 1
            if outcome.is_finding:
                where = seeds.keep(outcome.case, f"{outcome.verdict}-{outcome.case.number}")
                print(
                    f"FINDING {outcome.case}: {outcome.verdict}, {where}\n{outcome.said}",
                    flush=True,
                )
                with findings.open("a") as file:
                    file.write(
                        json.dumps(
                            {
                                "case": str(outcome.case),
                                "verdict": outcome.verdict,
                                "said": outcome.said,
                            }
                        )
                        + "\n"
                    )
            now = time.monotonic()
            if now - told > 30 or now - began > seconds:
                told = now
                state_file.write_text(json.dumps(state))
                done = ", ".join(
                    f"{name} {count}" for name, count in sorted(counts.items()) if ":" not in name
                )
                print(
                    f"{now - began:.0f} of {seconds:.0f} s, {state['cases']} cases in all: {done}",
                    flush=True,
                )
            if now - began > seconds:
                break
    print(*(f"  {name} {count}" for name, count in sorted(counts.items()) if ":" in name), sep="\n")
    return int(
        any(counts[verdict] for verdict in ("traceback", "hang", "memory", "died", "changed"))
    )


if __name__ == "__main__":
    sys.exit(main())
