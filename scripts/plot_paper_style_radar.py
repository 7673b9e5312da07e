"""Draw the two reference radars into a folder: python scripts/plot_paper_style_radar.py [docs/images].

They are `radar-llm-core-regression.png` and `radar-code-agent-tool-bench.png`. `agent2 chart radar mmbench` and
`agent2 chart radar agentbench` draw the same, with tables, other formats and what to do next. Numbers of your own:
import `plot_paper_radar` from here, or write a radar file (docs/charts.md).
"""

import sys
from pathlib import Path

from agent2.reports.radar import read_radar
from agent2.reports.radar_figure import plot_paper_radar

__all__ = ["plot_paper_radar"]


def main(folder: Path) -> None:
    """Draw both."""
    for name in ("mmbench", "agentbench"):
        radar = read_radar(name)
        metrics = [axis.label or axis.name for axis in radar.axes]
        series = {name: radar.raw(name) for name in radar.series}
        path = folder / f"{radar.file}.png"
        plot_paper_radar(radar.title, metrics, series, path, radar.subtitle)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images"))
