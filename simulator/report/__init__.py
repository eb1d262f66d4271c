"""What a replay, a comparison or a sweep leaves for people and notebooks.

In: totals and report data, as plain values. Out: text, Markdown, HTML pages that load
nothing from anywhere, and their figures as PNG and SVG. matplotlib is imported when a
page is made, never before.

    folder       the report of one run: totals.json, report_data.json, index.html
    text         totals in words and units
    study_table  the numbers by which runs are compared, variants side by side
    study_page   the page of a comparison or sweep;  run_charts: figures of a run
    html, theme  the look of pages and figures
"""
