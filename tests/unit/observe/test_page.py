"""docs/observability.md lists what there is."""

from scheduler.observe.catalogue import METRICS
from scheduler.observe.census import MOST_DOMAINS, Use
from scheduler.observe.instruments import Stage
from scheduler.observe.logs import FACTS
from scheduler.observe.proof import CutProof
from scripts import observability


def test_the_committed_page_is_current() -> None:
    assert observability.PAGE.read_text(encoding="utf-8") == observability.page()


def test_every_metric_has_a_sentence_and_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.text[0].isupper() or metric.text[0].isdigit()
        assert metric.text.endswith(".")


def test_every_word_is_explained() -> None:
    page = observability.page()
    for word in (*Stage, *CutProof):
        assert f"`{word}`" in page
    for use in Use:
        assert f"| {use} |" in page
    assert f"more than {MOST_DOMAINS} of them" in page
    facts = page[page.index("| fact |") :]
    assert all(fact in facts for fact in FACTS)
