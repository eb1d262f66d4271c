"""What fragmentation costs, for people: a sentence, tables, a page."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from scheduler.core.wording import hosts_text
from simulator.report.html import TableCell, render
from simulator.report.text import columns, duration
from simulator.twin.answer import Values, count_text, money
from simulator.twin.page import FrontDot, front_picture


def fragmentation_sentence(answer: Values) -> str:
    """What it costs, and what would help most."""
    unit, cost = _unit(answer), answer["cost_per_hour"]
    free = answer["fabric"]["free_hosts"]
    if not cost:
        return (
            f"Fragmentation costs nothing now: of {hosts_text(free)} that are free, every kind of"
            " gang that comes has a slot in one domain, or would have none in one piece either."
        )
    text = (
        f"Fragmentation costs {money(cost)} {unit} an hour while {hosts_text(free)} are free as"
        f" now, {money(answer['cost_per_day'])} a day."
    )
    best = next((p for p in answer["points"] if _is_advised(p, answer)), None)
    if best is None:
        return f"{text} No move of gangs to free hosts makes it less."
    saved = cost - best["cost_per_hour"]
    return (
        f"{text} Free {hosts_text(best['hosts'])} more in {best['domain']}: that"
        f" saves {money(saved)} an hour, and pays for the moves in"
        f" {duration(best['pays_back_h'] * 3600)}."
    )


def _is_advised(point: Values, answer: Values) -> bool:
    advice = answer["advice"]
    return advice is not None and all(point[key] == advice[key] for key in ("domain", "hosts"))


def _unit(answer: Values) -> str:
    return str(answer["currency"] or "GPU-hours")


def fragmentation_tables(answer: Values) -> list[tuple[str, list[list[str]]]]:
    """Slots by size, domains, and moves; heads first."""
    unit = _unit(answer)
    slots = [["size", "come a day", "slots now", "in one piece", "step across", f"{unit} an hour"]]
    for kind in answer["kinds"]:
        slots.append(
            [
                f"{kind['gpus']:,} GPUs",
                count_text(kind["per_day"]),
                f"{kind['slots']:,}",
                f"{kind['slots_in_one_piece']:,}",
                f"{kind['stretch']:.3f}" if kind["stretch"] > 1 else "-",
                money(kind["price_of_a_slot"]),
            ]
        )
    domains = [["domain", "free hosts", f"one more saves, {unit} an hour"]]
    domains += [
        [each["name"], f"{each['free']:,}", money(each["price_of_a_host"])]
        for each in answer["domains"]
    ]
    moves = [["move gangs off", "hosts", f"{unit} an hour then", f"moves cost, {unit}", ""]]
    for point in answer["points"]:
        marks = ["front"] if point["is_on_front"] else []
        marks += ["advised"] if _is_advised(point, answer) else []
        moves.append(
            [
                point["domain"] or "nothing",
                f"{point['hosts']:,}",
                money(point["cost_per_hour"]),
                money(point["moves_cost"]),
                ", ".join(marks),
            ]
        )
    return [
        ("Shadow prices of slots: what is lost while none of this size is in one domain", slots),
        ("Shadow prices of hosts", domains),
        ("Hosts freed in one domain by moving gangs to free hosts of others", moves),
    ]


def fragmentation_notes(answer: Values) -> list[str]:
    """What the numbers rest on."""
    found = [
        "a gang across domains loses the part of its run that its step is longer there; one that is"
        " bound to one domain counts while it waits",
        "front: no other move has both fewer hosts and less cost; moves cost a restart and half the"
        " time between two checkpoints",
    ]
    if answer["stranded_gpus"]:
        found.append(
            f"{answer['stranded_gpus']:,} GPUs are free on hosts that jobs share: no gang takes"
            " them, smaller jobs do"
        )
    found += [f"fitted from the log: {each}" for each in answer["fitted"]]
    return [*found, f"times: {answer['times']}"]


def fragmentation_text(answer: Values) -> str:
    """For a terminal."""
    fabric = answer["fabric"]
    lines = [
        fragmentation_sentence(answer),
        "",
        f"{fabric['name']}, {fabric['hosts']:,} hosts, {fabric['free_hosts']:,} free, from"
        f" {answer['source']} at version {answer['version']:,}",
    ]
    for title, rows in fragmentation_tables(answer):
        lines += ["", title, columns(rows)]
    return "\n".join([*lines, "", *(f"note: {each}" for each in fragmentation_notes(answer))])


def write_fragmentation(path: Path, answer: Values) -> None:
    """One file that needs nothing but itself. Raises: OSError."""
    tables = [
        (title, head, [[TableCell(each) for each in row] for row in rows])
        for title, (head, *rows) in fragmentation_tables(answer)
    ]
    text = render(
        "twin.html",
        title=f"{answer['fabric']['name']}: {answer['question']}",
        subtitle=f"from {answer['source']} at version {answer['version']:,}",
        sentence=fragmentation_sentence(answer),
        tables=tables,
        notes=fragmentation_notes(answer),
        words="Hosts to free against the cost that is left; the line is the front, red the advice.",
        picture=_picture(answer),
    )
    path.write_text(text, encoding="utf-8")


def _picture(answer: Values) -> Markup:
    dots = [
        FrontDot(
            point["domain"] or "as it is",
            point["hosts"],
            {"mean": point["cost_per_hour"], "low": None},
            point["is_on_front"],
            _is_advised(point, answer),
        )
        for point in answer["points"]
    ]
    head = f"{_unit(answer)} an hour"
    return front_picture(dots, "hosts to free in one domain", head, fragmentation_sentence(answer))
