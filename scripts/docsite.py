"""Hooks of mkdocs: the page of commands, the console's look, files outside docs/, and the search.

`commands.md` is made from the command line itself when the site is built, so it is never older
than the commands. A link such as `../examples/elastic.yaml` leads to a copy in the site.
"""

from __future__ import annotations

import re
from pathlib import Path

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from scheduler.cli.program import app, load_commands
from scheduler.console import theme

ROOT = Path(__file__).parent.parent
# What somebody with a task looks for comes before what lists and remembers.
BOOSTS = {
    4.0: ("operations.md", "job-file.md", "reliability.md", "launch.md", "quickstart.md"),
    0.25: ("index.md", "api.md", "commands.md", "testing.md", "decisions.md"),
}
OUTSIDE = re.compile(r"\]\(\.\./((?:deploy|examples|proto)/[^)#\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of commands, the look, and each file outside docs/ that a page links to."""
    load_commands()
    command = typer.main.get_command(app)
    with typer.Context(command, info_name="muster") as context:
        page = get_docs_for_click(obj=command, ctx=context, name="muster", title="Commands")
    linked = {
        path
        for file in files.documentation_pages()
        for path in OUTSIDE.findall(file.content_string)
    }
    files.append(File.generated(config, "commands.md", content=page))
    look = theme.variables("[data-md-color-scheme=slate] {{{block}}}")
    files.append(File.generated(config, "css/theme.css", content=look))
    icon = (theme.STATIC / "icon.svg").read_bytes()
    files.append(File.generated(config, "img/icon.svg", content=icon))
    for path in sorted(linked):
        files.append(File.generated(config, path, content=(ROOT / path).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the copies, and rank pages of tasks first in the search."""
    path = page.file.src_uri
    boost = next((boost for boost, pages in BOOSTS.items() if path in pages), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    if path == "index.md":
        page.meta.setdefault("hide", ["toc", "navigation"])
    return OUTSIDE.sub(r"](\1)", markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the theme's search dialog the name that screen readers say."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
