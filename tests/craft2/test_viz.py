"""The charts say what the rows say, at a fixed size, from every form of rows."""

import itertools

import pytest
from test_results import row

from craft2.apps.bench.results import Results
from craft2.viz import latency_distribution, throughput_by_clients
from craft2.viz.style import COLOURS, _apart, new_chart, short


def rows(backends=("file queue", "log"), factor=30):
    return [
        row(
            backend=backend,
            clients=clients,
            messages_per_s=1000.0 * clients * (factor if backend == "log" else 1),
            p50_ms=1.0,
            p95_ms=2.0,
            p99_ms=4.0,
            p999_ms=8.0 if backend == "log" else 80.0,
        )
        for backend in backends
        for clients in (1, 4, 16, 64)
    ]


def fields_of(result):
    return {name: getattr(result, name) for name in ("backend", "clients", "fsync_policy")}


def lines(chart):
    """The drawn lines as (x values, y values), without the dots of single runs."""
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in chart.axes[0].lines
        if line.get_linestyle() != "None"
    ]


def labels(chart):
    return [text.get_text() for text in chart.axes[0].texts]


def test_throughput_draws_a_line_a_backend_labelled_at_its_end():
    chart = throughput_by_clients(rows(), of="requests")
    assert chart.axes[0].get_ylabel() == "requests a second"
    assert lines(chart)[0] == ([1, 4, 16, 64], [1000, 4000, 16000, 64000])
    assert labels(chart) == ["file queue", "log"]
    axes = chart.axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "4", "16", "64"]
    assert axes.get_legend() is None
    assert axes.get_yscale() == "log"


def test_a_small_range_is_drawn_from_zero():
    some = [row(clients=n, messages_per_s=1000.0 + n) for n in (1, 4)]
    axes = throughput_by_clients(some).axes[0]
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0


def test_repeated_runs_become_a_median_and_dots():
    some = [row(clients=1, messages_per_s=float(rate)) for rate in (1, 2, 9)]
    chart = throughput_by_clients(some)
    assert lines(chart) == [([1], [2])]
    assert any(list(line.get_ydata()) == [1, 2, 9] for line in chart.axes[0].lines)


def test_every_form_of_rows_gives_the_same_lines(tmp_path):
    store = Results(tmp_path)
    store.append(rows())
    expected = lines(throughput_by_clients(rows()))
    assert lines(throughput_by_clients(store.table())) == expected
    assert lines(throughput_by_clients(store.table().to_pylist())) == expected


def test_policies_of_a_backend_are_lines_of_their_own_in_its_colour():
    some = [
        row(backend=backend, clients=n, messages_per_s=rate * n, fsync_policy=policy)
        for backend, policy, rate in (
            ("queue", "every message", 10.0),
            ("queue", "never", 100.0),
            ("log", "every batch", 70.0),
        )
        for n in (1, 4)
    ]
    chart = throughput_by_clients(some)
    assert [y for _, y in lines(chart)] == [[10, 40], [100, 400], [70, 280]]
    solid, dashed, other = chart.axes[0].lines
    assert solid.get_color() == dashed.get_color() != other.get_color()
    assert solid.get_linestyle() == other.get_linestyle() != dashed.get_linestyle()
    names = {"queue, fsync every message", "queue, fsync never", "log"}
    assert set(labels(chart)) == names
    alone = [row(**fields_of(each), p50_ms=1.0) for each in some if each.clients == 1]
    assert set(labels(latency_distribution(alone))) == names


def test_a_line_far_below_the_others_has_its_name_beside_it():
    chart = throughput_by_clients(rows(), known=("known", 10.0))
    chart.canvas.draw()
    axes = chart.axes[0]
    [name] = [text for text in axes.texts if text.get_text() == "known"]
    box, line = name.get_window_extent(), axes.transData.transform((64, 10.0))[1]
    assert box.y0 < line < box.y1


def test_names_that_would_overlap_are_pushed_apart():
    some = [
        row(backend=f"b{i}", clients=n, messages_per_s=1000.0 + i) for i in range(5) for n in (1, 4)
    ]
    chart = throughput_by_clients(some)
    chart.canvas.draw()
    heights = sorted(text.get_window_extent().y0 for text in chart.axes[0].texts)
    gaps = [b - a for a, b in itertools.pairwise(heights)]
    assert min(gaps) >= 12 * chart.dpi / 72


def test_a_pile_of_names_does_not_move_those_far_away():
    assert _apart([0, 50, 51, 200], lowest=0, gap=10) == [0, 45.5, 55.5, 200]
    assert _apart([1, 2, 3], lowest=0, gap=10) == [0, 10, 20]
    assert _apart([40, 42, 53], lowest=0, gap=10) == [35, 45, 55]
    assert _apart([], lowest=0) == []


def test_latency_from_rows_goes_through_the_stored_percentiles():
    chart = latency_distribution([r for r in rows() if r.clients == 4])
    (x, y), _ = lines(chart)
    assert y == [1.0, 2.0, 4.0, 80.0]
    assert x == pytest.approx([0.301, 1.301, 2, 3], abs=0.001)
    assert labels(chart) == ["log", "file queue"]  # from bottom to top
    assert [t.get_text() for t in chart.axes[0].get_xticklabels()] == [
        "0",
        "50",
        "90",
        "99",
        "99.9",
    ]


def test_latency_of_several_client_counts_names_them():
    names = labels(latency_distribution(rows(backends=["log"])))
    assert {"log, 1 client", "log, 64 clients"} <= set(names)


def test_latency_from_samples_draws_all_of_them_in_order():
    chart = latency_distribution({"queue": [3.0, 1.0, 2.0], "nothing": []})
    ((x, y),) = lines(chart)
    assert y == [1.0, 2.0, 3.0]
    assert x == sorted(x)


@pytest.mark.parametrize("chart", [throughput_by_clients, latency_distribution])
def test_a_chart_has_a_fixed_text_form_and_draws_itself_as_png(chart):
    drawn = chart(rows())
    assert repr(drawn) == "<Chart size 640x360 with 1 Axes>"
    png = drawn._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) == 640
    assert repr(chart([])) == repr(drawn)
    chart([])._repr_png_()


def test_helpers():
    assert [short(v) for v in (0.5, 800, 1000, 1500, 2e6)] == ["0.5", "800", "1k", "1.5k", "2M"]
    assert len(set(COLOURS)) == len(COLOURS)


def test_a_dollar_sign_in_a_name_begins_no_formula():
    chart, _ = new_chart("5$ \\frac 6$", "clients $", "y")
    assert chart._repr_png_().startswith(b"\x89PNG")
