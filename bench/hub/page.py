"""Write the page of the tested models: `bench/results/MODELS.md`, from `bench/results/models.json`."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.lib.markdown_table import markdown_table

RESULTS = Path(__file__).parents[1] / "results"
Row = dict[str, Any]
TITLES = {"tensorflow": "TensorFlow", "jax": "JAX"}
HEAD = """# Models of keras-hub and of keras.applications

This page shows which models train and predict on several devices with the results of one device. `make test-hub`
writes it, and with `KERAS_BACKEND=jax` its part on JAX. Each model is tiny, with random weights. It predicts 7 rows,
and trains on them with one step of SGD, on one device and on 3. Causal models also `generate()`. Statistics of
BatchNormalization are those of the global batch, and noise is off. LoRA and int8 are the backbone after `enable_lora()`
and `quantize("int8")`.

| verdict | meaning |
| --- | --- |
| equal | outputs are equal within 1e-4, and changes by the step within 1e-3, of the largest number of each array |
| ill-conditioned | they differ more, but so does one device with rows reversed, or with other last digits |
| refused | `multi_gpu_model()` or the first call raises a ValueError, before any training |
| one device fails | the model does not run on one device either |
| not tried | the model could not be built |
| too slow | it took longer than the limit, on cores that other programs shared |
| not run | the last run did not get to it |
| DIFFERS, CRASHES | a defect |
"""


def write_page(rows: Sequence[Row], engine: str, versions: str) -> None:
    """Write the results on an engine as JSON and, with those on the other, as a page."""
    file = RESULTS / "models.json"
    engines = json.loads(file.read_text()) if file.exists() else {}
    engines[engine] = {"versions": versions, "models": list(rows)}
    file.write_text(json.dumps(engines, indent=1) + "\n")
    (RESULTS / "MODELS.md").write_text(page(engines))


def page(engines: Mapping[str, dict[str, Any]]) -> str:
    """Return the text of the page."""
    found = {engine: {row["model"]: row["verdict"] for row in each["models"]} for engine, each in engines.items()}
    on_tensorflow, on_jax = found.get("tensorflow", {}), found.get("jax", {})
    names = list(dict.fromkeys([*on_tensorflow, *on_jax]))
    backbones = [name for name in names if "/" not in name]
    others = [name for name in names if "/" in name and not name.endswith(("/LoRA", "/int8"))]
    of_backbones = [
        [name, *(on.get(name + kind, "") for kind in ("", "/LoRA", "/int8") for on in (on_tensorflow, on_jax))]
        for name in backbones
    ]
    of_others = [[name.replace("/", ": "), on_tensorflow.get(name, ""), on_jax.get(name, "")] for name in others]
    kinds = [f"{kind}{engine}" for kind in ("", "LoRA, ", "int8, ") for engine in TITLES.values()]
    return "\n".join(
        [
            HEAD,
            *(f"{TITLES[engine]}: {_counted(each)}\n" for engine, each in sorted(engines.items(), reverse=True)),
            "## Backbones\n",
            markdown_table(["model", *kinds], of_backbones),
            *_section("Tasks, and keras.applications", ["model", *TITLES.values()], of_others),
            *(
                line
                for engine, each in sorted(engines.items(), reverse=True)
                for line in _section(
                    f"Why, on {TITLES[engine]}",
                    ["model", "verdict", "why"],
                    [_reason(row) for row in each["models"] if _needs_one(row)],
                )
            ),
            "",
        ]
    )


def _counted(results: dict[str, Any]) -> str:
    """Return a sentence with the number of models of each verdict."""
    counts = Counter(row["verdict"] for row in results["models"])
    total = sum(counts.values())
    return f"{results['versions']}. Of {total} models: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}."


def _section(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return a heading and its table, or nothing if the table has no rows."""
    return [f"\n## {title}\n", markdown_table(head, lines)] if lines else []


def _needs_one(row: Row) -> bool:
    return row["verdict"] not in ("equal", "not run")


def _reason(row: Row) -> list[str]:
    """Return the row of a model that is not equal."""
    off = (
        f"{row.get('off')} tolerances off; in another order or with other last digits, one device {row.get('permuted')}"
    )
    why = " ".join(row.get("why", off).replace("|", "\\|").split())
    return [row["model"].replace("/", ": "), row["verdict"], f"`{why}`" if "why" in row else why]
