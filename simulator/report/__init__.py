"""What a replay, a comparison or a sweep leaves for people and notebooks.

In: totals and report data, as plain values. Out: text, Markdown, HTML pages that load
nothing from anywhere, and their figures as PNG and SVG. matplotlib is imported when a
page is made, never before.

    folder       the report of one run: totals.json, report_data.json, index.html
    text         totals in words and units
    figures      the numbers by which runs are compared
    comparison_page, sweep_page    one page each;  run_charts: figures of a run
    html, theme  the look of pages and figures
"""
