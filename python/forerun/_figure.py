"""The figures of `forerun.plot` and of sweeps. This module needs matplotlib."""

from __future__ import annotations

import io

import matplotlib.figure


class Figure(matplotlib.figure.Figure):
    """A figure that a notebook shows as the value of a cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        """What IPython asks of a value."""
        out = io.BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()
