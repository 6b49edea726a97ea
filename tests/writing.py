"""Where the writing of a figure is."""


def check_writing(figure):
    """All writing lies inside the figure, and titles and labels do not touch."""
    figure.draw_without_rendering()
    texts = [t for ax in figure.axes for t in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    boxes = [text.get_window_extent() for text in texts if text.get_text().strip()]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    whole = figure.bbox
    for i, box in enumerate(boxes):
        assert whole.x0 <= box.x0
        assert box.x1 <= whole.x1
        assert whole.y0 <= box.y0
        assert box.y1 <= whole.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
