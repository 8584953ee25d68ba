"""How many bytes does a message take, by the size of the batch it travels in?"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from craft2.viz.style import Chart, colour_of, label_line_ends, new_chart, short


def bytes_by_batch_size(
    sizes: Mapping[str, Mapping[int, float]], title: str = "Bytes a message, by batch size"
) -> Chart:
    """One line a way of storing: bytes per message against messages per batch, a log axis.

    sizes: name -> messages per batch -> bytes per message.
    """
    chart, axes = new_chart(title, "messages in a batch", "bytes a message")
    colours = colour_of(sizes)
    ends = []
    for name, by_size in sizes.items():
        counts = sorted(by_size)
        values = [by_size[count] for count in counts]
        axes.plot(counts, values, color=colours[name], linewidth=2, marker="o", markersize=4)
        ends.append((name, float(counts[-1]), values[-1], colours[name]))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted({n for by in sizes.values() for n in by})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.set_ylim(bottom=0)
    label_line_ends(axes, ends)
    return chart
