"""What the soak found, counted, and its section of `bench/results/RESULTS.md`."""

from collections import Counter
from typing import Any

from bench.lib.markdown_table import markdown_table

# rows of a whole soak
CAMPAIGNS = {"trainings": 2000, "groups": 500, "kills": 1000, "mutated_files": 10_000, "memory": 6, "workers": 12}
GOOD = {
    "trainings": {
        "same",
        "same in float64",
        "same, with NaN in the same places",
        "at a kink",
        "refused, as it may be",
    },
    "groups": {"same", "same in float64", "same, with NaN in the same places", "at a kink", "refused, as it may be"},
    "kills": {"whole"},
    "mutated_files": {"refused", "read"},
    "memory": {"measured"},
    "workers": {"same"},
}
TITLES = {
    "trainings": "random models, trained on one device and in parallel",
    "groups": "random models in two parts, trained on one device and in groups of devices",
    "kills": "processes killed while saving",
    "mutated_files": "mutated files",
    "workers": "eight random trainings on one device and on 2 to 5 workers with 1 to 3 devices each",
}
MOST_KEPT = 40  # failures of a campaign that are written down


def summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of a campaign, and its failures."""
    failures = [row for row in rows if row["answer"] not in GOOD[name]]
    counted: dict[str, Any] = {"answers": Counter(row["answer"] for row in rows), "failures": failures[:MOST_KEPT]}
    if name in ("trainings", "groups"):
        counted["kinds"] = Counter(kind for row in rows for kind in row.get("kinds", []))
        counted["CPU seconds"] = sum(row.get("seconds", 0) for row in rows)
    elif name == "kills":
        counted["in a save"] = sum(row.get("in a save", 0) for row in rows)
    elif name == "mutated_files":
        counted["kinds"] = Counter(row["kind"] for row in rows if "kind" in row)
    elif name == "memory":
        counted["rows"] = [row for row in rows if row["answer"] == "measured"]
    return counted


def section(soak: dict[str, Any]) -> str:
    """The section."""
    where, campaigns = soak["environment"], soak["campaigns"]
    without = f" Left out: {', '.join(soak['without'])}." if soak["without"] else ""
    took = "in several runs" if soak["resumed"] else f"{soak['seconds'] / 60:.0f} minutes"
    parts = [
        "## Soak\n",
        f"`python bench/soak --seed {soak['seed']}`: {where['date']}, {where['machine']}, {where['versions']}, "
        f"{took}, two processes.{without}\n",
        markdown_table(
            ["campaign", "tried", "answers", "failures"],
            [_line(name, campaigns[name]) for name in TITLES if name in campaigns],
        ),
    ]
    if "trainings" in campaigns:
        parts.append(
            "\n`same in float64`: the numbers differ in float32, only by rounding. `at a kink`, such as that of |x| at "
            "0: one device differs from itself after a change in the last digit of its inputs.\n"
        )
        kinds = sorted(campaigns["trainings"]["kinds"].items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{name} {count}" for name, count in kinds)
        parts.append(f"\nProperties of the models, and how many had each: {listed}.\n")
    if "memory" in campaigns:
        parts.append(_memory(campaigns["memory"]["rows"]))
    for name, campaign in campaigns.items():
        parts += [
            f"- {name} {row['number']}: {row['answer']}, {row.get('why', '')[:200]}" for row in campaign["failures"]
        ]
    return "\n".join([*parts, ""])


def _line(name: str, campaign: dict[str, Any]) -> list[object]:
    answers = campaign["answers"]
    tried, bad = sum(answers.values()), sum(count for answer, count in answers.items() if answer not in GOOD[name])
    told = ", ".join(f"{answer} {count}" for answer, count in sorted(answers.items()))
    return [
        TITLES[name],
        tried,
        told + (f"; {campaign['in a save']} in a save" if "in a save" in campaign else ""),
        bad,
    ]


def _memory(rows: list[dict[str, Any]]) -> str:
    """What a process holds after a fifth of the work and at its end, and what one more costs in between."""
    head = [
        "work",
        "way",
        "times",
        "MB after a fifth",
        "MB at the end",
        "KB for one more",
        "objects",
        "descriptors",
        "threads",
    ]
    lines = []
    for row in rows:
        early, last = row["points"][len(row["points"]) // 5], row["points"][-1]
        more = (last["KB"] - early["KB"]) / max(1, last["done"] - early["done"])
        changes = [f"{early[name]} → {last[name]}" for name in ("objects", "descriptors", "threads")]
        lines.append(
            [
                row["work"],
                row["way"],
                last["done"],
                f"{early['KB'] / 1024:.0f}",
                f"{last['KB'] / 1024:.0f}",
                f"{more:.1f}",
                *changes,
            ]
        )
    return (
        markdown_table(head, lines)
        + "\n\nOne device is Keras alone, which keeps some of each model that it has trained.\n"
    )
