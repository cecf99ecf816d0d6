"""Write the page of the tested models: `bench/results/MODELS.md`, from `bench/results/models.json`."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.lib.markdown_table import markdown_table

RESULTS = Path(__file__).parents[1] / "results"
Row = dict[str, Any]
HEAD = """# Models of keras-hub and of keras.applications

This page shows which models train and predict on several devices with the results of one device. `make test-hub`
writes it. Each model is tiny, with random weights. It predicts 7 rows, and trains on them with one step of SGD, on one
device and on 3. Causal models also `generate()`. All BatchNormalization layers are synchronized, and noise is off. LoRA
and int8 are the backbone after `enable_lora()` and `quantize("int8")`.

| verdict | meaning |
| --- | --- |
| equal | outputs are equal within 1e-4, and changes by the step within 1e-3, of the largest number of each array |
| ill-conditioned | they differ more, but so does one device with the rows in reverse order: the cause is rounding |
| refused | `multi_gpu_model()` or the first call raises a ValueError, before any training |
| one device fails | the model does not run on one device either |
| not tried | the model could not be built |
| too slow | it took longer than the limit, on cores that other programs shared |
| DIFFERS, CRASHES | a defect |
"""


def write_page(rows: Sequence[Row], versions: str) -> None:
    """Write the results as JSON and as a page."""
    (RESULTS / "models.json").write_text(json.dumps({"versions": versions, "models": list(rows)}, indent=1) + "\n")
    (RESULTS / "MODELS.md").write_text(page(rows, versions))


def page(rows: Sequence[Row], versions: str) -> str:
    """Return the text of the page."""
    found = {row["model"]: row["verdict"] for row in rows}
    families = list(dict.fromkeys(name.partition("/")[0] for name in found))
    backbones = [name for name in families if name != "keras.applications"]
    kinds = ["", "/LoRA", "/int8"]
    of_backbones = [[name, *(found.get(name + kind, "") for kind in kinds)] for name in backbones]
    tasks = [name for name in found if "/" in name and not name.endswith(("/LoRA", "/int8"))]
    of_tasks = [[name.replace("/", ": "), found[name]] for name in tasks]
    counts = Counter(found.values())
    return "\n".join(
        [
            HEAD,
            f"With {versions}. Of {len(found)} models: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}.",
            "\n## Backbones\n",
            markdown_table(["model", "plain", "LoRA", "int8"], of_backbones),
            *_section("Tasks, and keras.applications", ["model", "verdict"], of_tasks),
            "\n## Why\n",
            markdown_table(["model", "verdict", "why"], map(_reason, filter(_needs_one, rows))),
            "",
        ]
    )


def _section(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return a heading and its table, or nothing if the table has no rows."""
    return [f"\n## {title}\n", markdown_table(head, lines)] if lines else []


def _needs_one(row: Row) -> bool:
    return row["verdict"] != "equal"


def _reason(row: Row) -> list[str]:
    """Return the row of a model that is not equal."""
    off = f"{row.get('off')} tolerances off; in another order, one device is {row.get('permuted')} off"
    why = " ".join(row.get("why", off).replace("|", "\\|").split())
    return [row["model"].replace("/", ": "), row["verdict"], f"`{why}`" if "why" in row else why]
