"""What does waiting for company cost a record, and how many requests does it save?"""

from __future__ import annotations

from collections.abc import Mapping

from craft2.viz.style import COLOURS, Chart, label_line_ends, new_chart


def batches_and_latency(
    runs: Mapping[int, tuple[int, float]], title: str = "A longer wait, fewer requests"
) -> Chart:
    """Two lines over `linger_ms`: batches, and the median latency; each in percent of its highest.

    runs: linger_ms -> (batches, milliseconds from send to acknowledgement).
    """
    chart, axes = new_chart(title, "linger_ms", "% of the highest")
    lingers = sorted(runs)
    ends = []
    for name, unit, index, below in (("batches", "", 0, 6), ("latency", " ms", 1, -12)):
        values = [runs[linger][index] for linger in lingers]
        scaled = [100 * value / max(values) for value in values]
        axes.plot(lingers, scaled, color=COLOURS[index], linewidth=2, marker="o", markersize=5)
        for linger, value, height in zip(lingers, values, scaled, strict=True):
            axes.annotate(
                f"{value:.2g}{unit}" if value < 10 else f"{value:.0f}{unit}",
                (linger, height),
                xytext=(5, below),
                textcoords="offset points",
                fontsize=8,
                color=COLOURS[index],
            )
        ends.append((name, float(lingers[-1]), scaled[-1], COLOURS[index]))
    axes.set_ylim(-12, 115)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xticks(lingers)
    label_line_ends(axes, ends)
    return chart
