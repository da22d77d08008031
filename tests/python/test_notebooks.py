"""The notebooks of docs/notebooks run from the first cell to the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_SECONDS_MAX = 300


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_a_notebook_runs(path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    # A cell that raises ends this; each notebook compares the bytes that it read.
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS_MAX,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    for cell in cells:
        if "plot(" in cell.source.splitlines()[-1]:
            assert any("image/png" in output.get("data", {}) for output in cell.outputs)
    shown = "".join(str(output) for cell in cells for output in cell.outputs)
    assert "forerun" in shown
