# SPDX-License-Identifier: Apache-2.0
"""Results of the detection benchmark as tables: what each mode finds, and what it wrongly flags."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from detection_causes import says
from detection_rows import PRECISIONS

MODES = ("bound", "theorem", "envelope", "own", "local")
PAPER = "paper x3"
SHARPEST = "local"
Result = Dict[str, Any]


def with_causes(result: Result, expected: Optional[Dict[str, Any]]) -> Result:
    """Adds whether each mode says the cause, of which only the sentences are kept."""
    result["knowable"] = expected is not None
    for answer in result["modes"].values():
        answer["cause"] = says(answer["causes"], expected) if "causes" in answer else ""
    return result


def of(part: int, all_: int) -> str:
    return f"{part} of {all_}"


def score_text(score: Optional[float]) -> str:
    return "-" if not score else "1e12" if score >= 1e12 else f"{score:.3g}"


def row_of(title: str, answers: List[Result], bugs: List[Result]) -> str:
    """`answers` of healthy rows; of `bugs` the answer of one mode, with "knowable" beside it."""
    found = [bug for bug in bugs if bug["verdict"] == "differs"]
    named = [bug for bug in bugs if bug["exact"] and bug["knowable"]]
    right = of(sum(bug["cause"] == "right" for bug in named), len(named))
    scores = sorted(bug["score"] for bug in found if bug["score"] is not None)
    cells = (of(sum(row["verdict"] != "same" for row in answers), len(answers)),
             of(sum(row["flagged"] for row in answers), sum(row["compared"] for row in answers)),
             of(len(found), len(bugs)), of(sum(bug["exact"] for bug in bugs), len(bugs)),
             right if any("causes" in bug for bug in bugs) else "-",
             score_text(scores[len(scores) // 2]) if scores else "-")
    return f"| {title} | {' | '.join(cells)} |"


def answers_of(results: List[Result], mode: str, bugs: bool) -> List[Result]:
    return [{**row["modes"][mode], "knowable": row["knowable"]}
            for row in results if bool(row["bug"]) == bugs]


HEAD = ("healthy runs flagged | healthy tensors flagged | bugs found | first module exact | "
        "cause right | median score |")


def by_mode(results: List[Result]) -> str:
    """All precisions together; below ttrace's modes, what others gate at."""
    lines = [f"| mode | {HEAD}", "|---|---|---|---|---|---|---|"]
    lines += [row_of(mode, answers_of(results, mode, False), answers_of(results, mode, True))
              for mode in (*MODES, PAPER)]
    healthy = [row["peers"] for row in results if not row["bug"]]
    bugs = [row["peers"] for row in results if row["bug"]]
    for peer in sorted({peer for row in results for peer in row["peers"]}):
        flagged, found = (sum(row.get(peer, False) for row in rows) for rows in (healthy, bugs))
        lines.append(f"| {peer} | {of(flagged, len(healthy))} | - | {of(found, len(bugs))} "
                     "| - | - | - |")
    return "\n".join(lines)


def by_precision(results: List[Result]) -> str:
    """The sharpest mode."""
    lines = [f"| {SHARPEST} mode, precision | {HEAD}", "|---|---|---|---|---|---|---|"]
    for precision in PRECISIONS:
        rows = [row for row in results if row["precision"] == precision]
        if rows:
            lines.append(row_of(precision, answers_of(rows, SHARPEST, False),
                                answers_of(rows, SHARPEST, True)))
    return "\n".join(lines)


def by_bug(results: List[Result]) -> str:
    """Every mode's answer in a letter, and what the sharpest one says."""
    def letter(answer: Result) -> str:
        return "-" if answer["verdict"] != "differs" else "E" if answer["exact"] else "f"

    lines = [f"| bug | precision | {' | '.join((*MODES, PAPER))} | cause in {SHARPEST} mode "
             "| its score |", "|---|---|" + "---|" * (len(MODES) + 3)]
    for row in results:
        if not row["bug"]:
            continue
        answer = row["modes"][SHARPEST]
        name = row["name"].split("-", 2)[2].replace("_", " ")
        lines.append(f"| {name} | {row['precision']} | "
                     + " | ".join(letter(row["modes"][mode]) for mode in (*MODES, PAPER))
                     + f" | {answer['cause'] or 'not knowable'} | {score_text(answer['score'])} |")
    return "\n".join(lines)


def tables(results: List[Result], by_row: bool) -> str:
    parts = [by_mode(results), by_precision(results)]
    if by_row:
        parts.append(by_bug(results) + "\n\nE: found, the first module is exact; "
                     "f: found, another one is first; -: not found")
    return "\n\n".join(parts)


def problems(results: List[Result], mode: str) -> List[str]:
    """Rows that are not as they should be in the sharpest mode."""
    wrong = []
    for row in results:
        answer = row["modes"][mode]
        if row["bug"] and (answer["verdict"] != "differs" or not answer["exact"]):
            wrong.append(f"{row['name']}: {answer['verdict']}, first {answer['first']}")
        elif row["bug"] and answer["cause"] in ("wrong", "none"):
            wrong.append(f"{row['name']}: its cause is not said, but {answer['causes']}")
        if not row["bug"] and answer["verdict"] != "same":
            wrong.append(f"{row['name']}: {answer['verdict']}, first {answer['first']}, "
                         f"score {answer['score']}")
    return wrong
