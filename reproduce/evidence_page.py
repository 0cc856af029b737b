"""docs/evidence.md and its figure, written from a report: of the experiment, and of icons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from reproduce import experiment
from reproduce.claims import (
    CHOICE,
    CLAIMS,
    EXPERIMENT,
    FAILS,
    HOLDS,
    ICONS,
    KEPT,
    LEAST_GAP,
    LEVEL,
    LITE2,
    NOT_TESTED,
    NOTHING,
    OPEN,
    PARTS,
    PIXELS,
    RECORDED,
    C,
    Claim,
    primary_of,
    recorded,
)
from reproduce.experiment.report import claims_of, front, recovered
from reproduce.experiment.rows import SCORES, SIZES
from reproduce.experiment.runs import Task, tasks
from reproduce.experiment.sets import OPENSTAX, ORACLE
from subtext.core import DIRECTIONS
from subtext.text_helpers import counted


def _interval(effect: Mapping[str, float], digits: int = 1) -> str:
    return f"{effect['difference']:+.{digits}f} [{effect['low']:+.{digits}f}, {effect['high']:+.{digits}f}]"


def _why(found: Mapping[str, Any], oracle: Mapping[str, Any] | None) -> str:
    """In one sentence or two, what the verdict rests on, and what stands beside it."""
    effect = primary_of(found)
    if effect is None:
        return "Not run."
    p = effect["p_corrected"]
    said = f"Corrected p {'< .001' if p < 0.001 else f'{p:.3f}'.lstrip('0')}."
    if found["verdict"] == NOTHING:
        return "No oracle was trained." if oracle and oracle["gap"] is None else "The oracle gains too little."
    if "edge" in found:
        return f"The best rate of {' and of '.join(f'`{row}`' for row in found['edge'])} is the last that was tried."
    if found["verdict"] == HOLDS:
        beside = [
            f"not above `{other['control']}`, {_interval(other)}"
            for other in found["effects"]
            if other["part"] == effect["part"] and not other["primary"] and other["low"] <= 0
        ]
        said += " By less than half of what was published." if effect["high"] < found["margin"] else ""
        said += f" But {'; '.join(beside)}." if beside else ""
    return said


def word(found: Mapping[str, Any]) -> str:
    """The verdict on a claim in a few words."""
    return str(found["verdict"]) if primary_of(found) is not None else "not run"


def gap_line(oracle: Mapping[str, Any] | None) -> str:
    """What the oracle gains, as a sentence."""
    if oracle is None or oracle["gap"] is None:
        return f"Oracle's gap: {'has none' if oracle is None else 'not measured'}."
    interval = f" [{oracle['low']:+.1f}, {oracle['high']:+.1f}]" if "low" in oracle else ""
    return f"Oracle's gap: {oracle['gap']:+.1f}{interval} points."


def table(
    part: Mapping[str, Any],
    claimed: Sequence[Claim] = CLAIMS,
    *,
    beside: Mapping[str, Mapping[str, Any]] | None = None,
    all_claims: bool = True,
) -> list[str]:
    """The claims as rows of Markdown, above which stands what the oracle gains.

    part        of a report            beside  head of a column -> the part of other data, whose verdicts it has
    all_claims  False leaves out those without a row that was run
    """
    others, oracle = beside or {}, part.get("oracle")
    heads = ["claim", "primary pair, then other controls", "margin", "all pairs, 95 %", "abstract", "literal"]
    heads += ["seeds", "verdict", *others]
    lines = [gap_line(oracle), "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    seeds, paper = len(part["seeds"]), ""
    for number, (claim, found) in enumerate(zip(claimed, part["claims"], strict=True)):
        if not (all_claims or found["effects"]):
            continue
        if claim.paper != paper:
            paper = claim.paper
            lines.append(f"| **{paper}** |{' |' * (len(heads) - 1)}")
        controls = list(dict.fromkeys(effect["control"] for effect in found["effects"])) or [claim.control]
        by_part = [
            "<br>".join(
                f"**{_interval(effect)}**" if effect["primary"] else _interval(effect)
                for effect in found["effects"]
                if effect["part"] == kind
            )
            or "-"
            for kind in PARTS
        ]
        measure = "; kept neighbours" if claim.measure == KEPT else ""
        named = f"`{claim.row}`{measure} against " + "<br>".join(f"`{name}`" for name in controls)
        cells = [
            claim.says,
            named,
            f"{found['margin']:+.1f}" if "margin" in found else "-",
            *by_part,
            str(seeds) if found["effects"] else "-",
            f"*{found['verdict']}*. {_why(found, oracle)}",
            *(word(other["claims"][number]) for other in others.values()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def recorded_table() -> list[str]:
    """The claims that rest on notes, as rows of Markdown."""
    lines = ["| claim | test and control | found | 95 %, t over seeds | margin | seeds | verdict |", "|---" * 7 + "|"]
    paper = ""
    for claim, effect, said in recorded():
        if claim.paper != paper:
            paper = claim.paper
            lines.append(f"| **{paper}** | | | | | | |")
        digits = 2 if claim.margin is not None else 1
        margin = f"{claim.margin:+.2f}" if claim.margin is not None else "-"
        interval = _interval(effect, digits) if effect else "no test"
        less = (
            " By less than half of what was published."
            if said == HOLDS and effect["high"] < (claim.margin or 0)
            else ""
        )
        cells = [
            claim.says,
            claim.test,
            claim.found,
            interval,
            margin,
            str(len(claim.first)),
            f"*{said}*.{less} {claim.why}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def not_tested_table() -> list[str]:
    """The claims that nothing here tests, as rows of Markdown."""
    rows = [f"| {paper} | {says} | {why} |" for paper, claims in NOT_TESTED.items() for says, why in claims]
    return ["| paper | claim | why |", "|---|---|---|", *rows]


def figure(report: Mapping[str, Any], file: Path) -> None:
    """Draw the effect of each claim's primary pair with its interval and its margin, by data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = [(title(task), claims_of(task), part) for task, part in _trained_tasks(report)]
    data += [("Icons", CLAIMS, report[ICONS])] if ICONS in report else []
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for name, claimed, part in data:
        tested = [pair for pair in zip(claimed, part["claims"], strict=True) if primary_of(pair[1]) is not None]
        rows += [(name, {})] if tested else []
        rows += [(_short(claim), of) for claim, of in tested]
    rows.reverse()
    drawn = Figure(figsize=(9, 0.22 * len(rows) + 1.2), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    colours = {HOLDS: "#1b7f3b", FAILS: "#b3261e", OPEN: "#5f6368", NOTHING: "#9aa0a6"}
    for height, (_, found) in enumerate(rows):
        if found and (effect := primary_of(found)):
            colour = colours[found["verdict"]]
            axes.plot([effect["low"], effect["high"]], [height, height], color=colour)
            axes.plot(effect["difference"], height, "o", color=colour, markersize=4)
            axes.plot(found["margin"], height, "|", color="black", markersize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(-1, len(rows))
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7)
    for label, (_, found) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if found else "bold")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "points, with 95 % interval; tick: half of the published gain\n"
        "green: holds; red: fails; dark grey: cannot tell; light grey: nothing is concluded",
        fontsize=8,
    )
    drawn.savefig(file, dpi=110)


def _short(claim: Claim) -> str:
    """A claim's pair of rows, as a label."""
    control = "itself permuted" if claim.control == f"{claim.row} permuted" else claim.control
    measure = ", kept neighbours" if claim.measure == KEPT else ""
    return f"{claim.row} − {control} ({claim.part}{measure})"


def _right(part: Mapping[str, Any]) -> dict[str, str]:
    """The lowest and the highest share of right choices over rows, by kind of pair."""
    right = {
        kind: [np.mean([row[f"{way}/{CHOICE}/{kind}"] for way in DIRECTIONS]) for row in part["rows"].values()]
        for kind in ("literal", "abstract")
    }
    return {kind: f"{min(values):.0f} to {max(values):.0f}" for kind, values in right.items()}


def _trained(part: Mapping[str, Any]) -> str:
    """Effective sample sizes of the weights in training, over seeds and epochs, by score."""
    return ", ".join(
        f"{score} {100 * min(sizes):.0f} to {100 * max(sizes):.0f} %"
        for score, by_seed in part["trained"].items()
        if (sizes := [size for epochs in by_seed for size in epochs])
    )


def counts(verdicts: Sequence[str]) -> str:
    """How many claims have which verdict, in words."""
    said = {HOLDS: "hold", FAILS: "fail", OPEN: "cannot be told", NOTHING: "allow no conclusion"}
    one = {HOLDS: "holds", FAILS: "fails", NOTHING: "allows no conclusion"}
    found = [
        f"{(many := verdicts.count(name))} {one.get(name, word) if many == 1 else word}"
        for name, word in said.items()
        if name in verdicts
    ]
    return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else "".join(found) or "none was run"


def _tested(part: Mapping[str, Any]) -> list[str]:
    return [str(found["verdict"]) for found in part["claims"] if primary_of(found) is not None]


def _claimed(
    part: Mapping[str, Any], row: str, control: str, measure: str = CHOICE, claimed: Sequence[Claim] = CLAIMS
) -> str:
    """The verdict on a claim by its primary pair, with the effect, its interval and the margin."""
    for claim, found in zip(claimed, part["claims"], strict=True):
        effect = primary_of(found)
        if (claim.row, claim.control, claim.measure) == (row, control, measure) and effect is not None:
            said = f"*{found['verdict']}*, {_interval(effect)}, margin {found['margin']:.1f}"
            return f"{said} ({_open(found, effect)})" if found["verdict"] == OPEN else said
    return "not run"


def _open(found: Mapping[str, Any], effect: Mapping[str, float]) -> str:
    """Why the rule cannot tell, in a few words."""
    if "edge" in found:
        return "no verdict, as the best learning rate is the last that was tried"
    if effect["low"] > 0:
        return "above 0, but not when corrected"
    return "the interval reaches from 0 or less to the margin or more"


def _trained_tasks(report: Mapping[str, Any]) -> list[tuple[Task, Mapping[str, Any]]]:
    return [(task, report[EXPERIMENT][task.folder]) for task in tasks() if task.folder in report.get(EXPERIMENT, {})]


def _wrapped(*texts: str) -> str:
    """Paragraphs and items of a list in lines of 120 letters."""
    return "\n".join(
        fill(
            text,
            120,
            subsequent_indent="  " if text.startswith("* ") else "",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for text in texts
    )


OTHERS = {LITE2: "by Lite2", PIXELS: "from pixels"}
"""The same icons with other image encoders -> head of their column."""


MEANING = (
    "Where no other unit is given, a figure is a difference of two models in points of the per cent of right choices "
    f"of the true partner among {C}, with its 95 % interval. An abstract pair shares a topic, and a literal one what "
    'is shown. Weights say how much each pair counts in training; "permuted" are the same weights, each given to '
    'another pair; "uniform" gives all pairs one weight. *Holds*: the interval lies above 0, also when corrected for '
    "the number of claims; the gain may be smaller than what was published. *Fails*: it does not hold, and the "
    "interval lies below the margin, which is half of what was published, in the points of these data. *Cannot tell "
    "here*: neither, or the best learning rate was the last that was tried."
)
"""What the words of the first section mean."""


def _believe(report: Mapping[str, Any]) -> list[str]:
    """What a reader may believe, in some ten lines; every verdict is the rule's."""
    icons = report.get(ICONS)
    lines = [line for task, part in _trained_tasks(report) if task.is_main for line in _on_main(task, part)]
    judged = [(task, part) for task, part in _trained_tasks(report) if part["oracle"]["gap"] is not None]
    lines += _elsewhere([(task, part) for task, part in judged if not task.is_main and task.set != OPENSTAX])
    lines += _on_photographs([(task, part) for task, part in judged if task.set == OPENSTAX])
    if icons is not None:
        lines += [
            "* **The paper's own weights on icons**, all pairs, against a model without weights: DIVERSITY "
            f"{_claimed(icons, 'diversity', 'pvse')}; DISCREPANCY {_claimed(icons, 'discrepancy', 'pvse')}; one larger "
            f"weight for all pairs, which the paper also tried: {_claimed(icons, 'uniform', 'pvse')}. An icon's text "
            "is a list of what its designer wrote that it stands for. Nobody knows which of these pairs are abstract, "
            "so no positive control is possible: *fails* may be a fault of the data.",
            "* **Losses within modalities** on icons (ECCV 2020): they keep more semantic neighbours, "
            f"{_claimed(icons, 'angular thomas', 'angular', KEPT)}, in per cent of an item's semantic neighbours. They "
            "add right choices to the angular loss: "
            f"{_claimed(icons, 'angular thomas', 'angular')}; to triplets, against the same with neighbours drawn at "
            f"random: {_claimed(icons, 'thomas', 'thomas random')}.",
        ]
    notes = {claim.says: f"*{said}*, {_interval(effect, 2)}" for claim, effect, said in recorded() if effect}
    asp, recall, triplets = (
        next(text for says, text in notes.items() if part in says)
        for part in ("DAA lifts ASP", "DAA lifts recall", "beats triplets")
    )
    return [
        *lines,
        "* **Listwise losses** on literal Flickr8k, three seeds, without a positive control. DAA lifts ASP of PCME: "
        f"{asp} points, where 4.1 were published; rsum, the sum of six recalls (600 at most): {recall}. AsCL's "
        f"contrastive loss beats triplets: {triplets} of rsum, at one learning rate that was tuned for neither.",
        f"* **Much is not tested**: {counted(sum(map(len, NOT_TESTED.values())), 'claim')} have no fair row, and a "
        f"table says why. {_untrained(report)}",
        '* "Here" is small: Flickr8k, textbooks and icons, frozen features of small networks, no news images. A claim '
        "that fails here may hold with the papers' data.",
    ]


def _untrained(report: Mapping[str, Any]) -> str:
    """What of the experiment is not finished."""
    found = report.get(EXPERIMENT, {})
    rows = sum(len(task.rows) for task in tasks())
    done = sum(len(task.rows) - len(found[task.folder]["waiting"]) for task in tasks() if task.folder in found)
    none = [_lower(title(task)) for task in tasks() if task.folder not in found]
    if done == rows:
        return "All rows of the experiment are trained."
    said = f"; of these sets and models none is: {'; '.join(none)}" if none else ""
    return f"Of the experiment's {rows:,} rows {rows - done:,} are not trained yet{said}."


def _on_main(task: Task, part: Mapping[str, Any]) -> list[str]:
    """What the main set of the experiment says."""
    if part["oracle"]["gap"] is None:
        return []
    claimed = claims_of(task)
    shares = {score: recovered(part, f"{score} images 75") for score in SCORES}
    said = [
        f"{score.upper()} {_claimed(part, f'{score} images 75', f'{score} images 75 permuted', claimed=claimed)}"
        + ("" if share is None else f", {100 * share:.0f} % of what perfect weights gain")
        + (
            ""
            if (above := part["rows"].get(f"{score} images 75", {}).get("above uniform", {}).get("abstract")) is None
            else f"; against uniform weights {_interval(above)}"
        )
        for score, share in shares.items()
    ]
    oracle = part["rows"]["oracle"]
    above = oracle.get("above uniform", {})
    cost = (
        f" Against uniform weights they change abstract pairs by {_interval(above['abstract'])} and literal ones by "
        f"{_interval(above['literal'])}."
        if above
        else ""
    )
    edge = "" if oracle["inner"] else " Their best learning rate is the last that was tried: they may gain more."
    return [
        "* **A check of the test**, the positive control: perfect weights, which know the quarter of Flickr8k's pairs "
        f"that we made abstract, gain {part['oracle']['gap']:+.1f} on abstract pairs over the same weights permuted."
        f"{cost}{edge}",
        *_as_published(part, claimed),
        "* **Weights by one modality on the same pairs**: from the neighbourhoods of images alone, with a mean of 1, "
        f"as uneven as if 75 % of the pairs counted; abstract pairs, against themselves permuted: {'. '.join(said)}.",
    ]


def _as_published(part: Mapping[str, Any], claimed: Sequence[Claim]) -> list[str]:
    """What the papers' own form of the weights gains on the main set, where it was run."""
    rows = [(score, f"{score} Gamma -1") for score in SCORES if f"{score} Gamma -1" in part["rows"]]
    if not rows or "uniform 196" not in part["rows"]:
        return []

    effects = [(found["row"], effect) for found in part["claims"] for effect in found["effects"]]

    def against(row: str, control: str, kind: str) -> str:
        found = [one for name, one in effects if (name, one["control"], one["part"]) == (row, control, kind)]
        return _interval(found[0]) if found else "not run"

    # Its own permutation was added when the row was known, and decides nothing.
    said = [
        f"{score.upper()} {_claimed(part, row, 'uniform 196', claimed=claimed)}; literal pairs change by "
        f"{against(row, 'uniform 196', 'literal')}, all pairs by {against(row, 'uniform 196', 'all')}; above the same "
        f"weights permuted, abstract pairs gain {against(row, f'{row} permuted', 'abstract')}"
        for score, row in rows
    ]
    return [
        "* **The paper's own weights on these pairs** (CVPR workshops 2022). DIVERSITY weights a pair by how diverse "
        "the neighbours of its image and of its text are, DISCREPANCY by how far both are from their neighbours' "
        "neighbours; in the paper's form, by the difference of both. Abstract pairs, against equal weights of the same "
        "sum (196 in 32 pairs): "
        f"{'. '.join(said)}."
    ]


def _elsewhere(found: Sequence[tuple[Task, Mapping[str, Any]]]) -> list[str]:
    """What the weights of one modality gain by other hosts, and at other shares of abstract and right pairs."""
    said = [
        (f"{score.upper()}, {_lower(title(task))}", _claimed(part, *pair, claimed=claims_of(task)))
        for task, part in found
        for score in SCORES
        if (pair := (f"{score} images 75", f"{score} images 75 permuted"))[0] in part["rows"]
    ]
    if not said:
        return []
    verdicts = [text.split("*")[1] for _, text in said]
    held = [f" *Holds*: {name}: {text.partition(', ')[2]}." for name, text in said if text.startswith(f"*{HOLDS}*")]
    return [
        f"* **The same weights by other models and on other shares**, {counted(len(said), 'claim')}: "
        f"{counts(verdicts)}.{''.join(held)}"
    ]


def _on_photographs(found: Sequence[tuple[Task, Mapping[str, Any]]]) -> list[str]:
    """What the photographs of OpenStax say."""
    if not found:
        return []
    said, few = [], []
    for task, part in found:
        oracle, host = part["oracle"], title(task).partition(", ")[2]
        gap = f"{oracle['gap']:+.1f} [{oracle['low']:+.1f}, {oracle['high']:+.1f}] {host}"
        if oracle["gap"] < LEAST_GAP:
            few.append(gap)
            continue
        pairs = [(score.upper(), f"{score} images 75", f"{score} images 75 permuted") for score in SCORES]
        within = "losses within modalities, against neighbours drawn at random (ECCV 2020),"
        pairs.append((within, "within", "within random"))
        own = claims_of(task)
        verdicts = "; ".join(f"{name} {_claimed(part, row, control, claimed=own)}" for name, row, control in pairs)
        said.append(f" They gain {gap}: {verdicts}.")
    if few:
        nothing = f"That is under {LEAST_GAP:g} points: *nothing is concluded* from these pairs"
        said.append(f" They gain {' and '.join(few)}. {nothing}, as the check itself shows too little.")
    return [
        f"* **Real photographs**, {found[0][1]['pairs']['all']:,} of OpenStax's textbooks with the captions of their "
        "chapters. A caption is the more complementary, the less it shares with a literal description of the image. "
        "The check here are weights that know which third is the most complementary, against themselves permuted."
        f"{''.join(said)}"
    ]


def page(report: Mapping[str, Any]) -> str:
    """docs/evidence.md, from a report of the experiment, with icons where it has them."""
    icons = report.get(ICONS)
    others = {head: report[name] for name, head in OTHERS.items() if name in report}
    tested = [
        *(f"{_lower(title(task))}: {counts(_tested(part))}" for task, part in _trained_tasks(report)),
        *([f"on icons {counts(_tested(icons))}"] if icons else []),
        *(f"{head} {counts(_tested(part))}" for head, part in others.items()),
    ]
    count = (
        f"Claims on loosely related pairs: {'; '.join(tested)}. Of "
        f"{counted(len(RECORDED), 'claim')} that rest on notes {counts([said for *_, said in recorded()])}. Every "
        "number here is read from [evidence.json](evidence.json) or from these notes; `python -m reproduce.evidence "
        "--report` writes the page from the finished runs in `reproduce/results`."
    )
    on_notes = (
        "These rest on the notes on [models of regions and words](../reproduce/notes/regions.md) and [listwise "
        "losses](../reproduce/notes/ranking.md), on literal Flickr8k. They have no oracle and no test over queries: "
        "the intervals are Student's t over three seeds, which must be far apart to say anything."
    )
    limits = _limits(icons)
    return f"""# Do the four papers' claims hold here?

## What a reader may believe

{_wrapped(MEANING)}

{_wrapped(*_believe(report))}

## Why

{_wrapped(*_how(icons, others))}

## The count

{_wrapped(count)}

![Effects with intervals](evidence.png)

## The experiment

{_wrapped(*_rules())}

{chr(10).join(section(report[EXPERIMENT]))}
{_icons_results(icons, others)}## Models of regions and words, and listwise losses

{_wrapped(on_notes)}

{chr(10).join(recorded_table())}

## Not tested here

{chr(10).join(not_tested_table())}

## What this does not say

* Nothing here is about news: no set of news images was tested.
* The papers' Doc2Vec neighbours find no topics in so few texts, so neighbours are those of latent semantic analysis.
* Kept neighbours are semantic by latent semantic analysis, as those of the training are, on other texts.
{_wrapped("* Planted looseness is not the looseness that people write." + limits)}
"""


def _lower(text: str) -> str:
    return text if text.startswith("OpenStax") else text[0].lower() + text[1:]


def _rules() -> list[str]:
    """The rules of the experiment, as they were fixed before any training."""
    paragraphs = (experiment.__doc__ or "").replace("`ORACLE`", f"{ORACLE:g}").split("\n\n")[2:]
    return [f"* {' '.join(line.split())}" for line in _sentences_by_head("\n".join(paragraphs))]


def _sentences_by_head(text: str) -> list[str]:
    """Each rule begins on a line of its own, with its name."""
    rules: list[str] = []
    for line in text.strip().splitlines():
        head = line.split(" ")[0]
        if head in {"Sets.", "Hosts", "Rates:", "Weights", '"permuted"', "Primary", "Seeds:", "Intervals:"}:
            rules.append(line)
        else:
            rules[-1] += f" {line}"
    return rules


def _how(icons: Mapping[str, Any] | None, others: Mapping[str, Any]) -> list[str]:
    """How it was tested, as items of a list."""
    return [
        "* **The rule**, of which the first that fits decides. (1) The data have an oracle (weights made from what was "
        f"planted), and its gap over its own weights permuted is under {LEAST_GAP:g} points, or was not measured: "
        "*nothing is concluded*. (2) In the experiment, the best rate of one of the two rows is the first or the last "
        "that was tried: *cannot tell here*. (3) The whole interval lies above 0, and the corrected p-value is below "
        f"{f'{LEVEL:g}'.lstrip('0')}: *holds*. (4) The whole interval lies below the margin: *fails*. (5) Else "
        "*cannot tell here*. Icons and the claims that rest on notes have no oracle: that weights fail there may be a "
        "fault of the data.",
        "* **The margin** is half of the published gain, as a difference of d' (choices among 5, 20 and 100 do not "
        f"compare in per cent), in points of a choice among {C} above what the control reaches here. Each claim has "
        "one primary pair of rows, whose effect is in bold; the other controls decide nothing.",
        "* **Intervals** are of 95 %, about other trainings and other items: crossed random effects with Student's t. "
        "Items are drawn by image, icons by concept, textbook images by book. p-values are corrected over the claims "
        "of a table (Holm).",
        *(_icons_data(icons, others) if icons else []),
        '* **Controls of icons.** "permuted": each pair has the weight of another, the same in all epochs. "thomas '
        'random": neighbours by vectors drawn at random; such a control has all of a method but its meaning. "even": '
        "the sum of both modalities gives weights that are less even than the difference; its sign makes them as even "
        "before training. These rows were added when the others were known. Each row tried two learning rates with the "
        "first seed; the larger was chosen for most, so the best may lie beyond it.",
        "* The rule, the margins and the intervals of icons are those of an audit that was made when all rows were "
        "known. No row was trained again for it. Those of the experiment were fixed before any of its runs; two rows "
        "that decide nothing were added later.",
    ]


def _spans(part: Mapping[str, Any], items: str) -> str:
    """How well the rows do."""
    right = _right(part)
    return (
        f"The rows are right among {C} for {right['abstract']} % of abstract and {right['literal']} % of literal "
        f"{items}, where chance is {100 / C:.0f} %."
    )


def _icons_results(icons: Mapping[str, Any] | None, others: Mapping[str, Any]) -> str:
    """The section on icons; nothing without them."""
    if icons is None:
        return ""
    right = {head: _right(part) for head, part in others.items()}
    said = "".join(f" Those {head}: {each['abstract']} % and {each['literal']} %." for head, each in right.items())
    return f"## Icons\n\n{_wrapped(_spans(icons, 'icons') + said)}\n\n{chr(10).join(table(icons, beside=others))}\n\n"


def _icons_data(icons: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """The data and the protocol of icons, as items of the list."""
    data, protocol = icons["data"], icons["protocol"]
    items = [
        f"* **Icons.** {data['pairs']:,} training icons of six sets. The text of an icon is what its designer wrote "
        'that it stands for: for a gavel "justice, law, court". Concepts of val and test are not in train. Lambda is '
        f"{data['total']:g}; in training the effective sample sizes were {_trained(icons)}. Abstract are the fifth of "
        f"test whose texts have neighbours with the least similar images, on untrained features ({data['loose']:,} "
        f"icons). {len(icons['seeds'])} seeds, {protocol['epochs']} epochs; {data['selecting']:,} icons of val choose "
        f"rate and epochs; test ({protocol['test']:,} icons of {protocol['concepts']:,} concepts) is evaluated once."
    ]
    encoders = {
        "by Lite2": "the 3 x 3 cells of EfficientNet-Lite2",
        "from pixels": "a small residual network that learns from images of 48 pixels with the rest",
    }
    if others:
        each = "; ".join(
            f"{head}: {encoders[head]} ({len(part['seeds'])} seeds, {part['protocol']['epochs']} epochs)"
            for head, part in others.items()
        )
        items.append(f"* **The same icons with other image encoders**, {each}.")
    return items


def _limits(icons: Mapping[str, Any] | None) -> str:
    """What icons do not say."""
    if icons is None:
        return ""
    return (
        " That of icons is, but their texts are lists of tags, the network of their features knows photographs, and "
        f"they had {icons['protocol']['epochs']} epochs."
    )


def title(task: Task) -> str:
    """What a task is, in a few words."""
    hosts = {
        "infonce": "InfoNCE of width 64",
        "linear": "linear maps to 8 numbers, triplets",
        "pvse-16": "PVSE of width 16",
        "pvse-256": "PVSE of width 256",
    }
    sets = {
        "topics-25": "a quarter of the pairs abstract",
        "topics-5": "5 % of the pairs abstract",
        "topics-100": "all pairs abstract",
        "topics-25-mismatched": "a quarter abstract, a fifth mismatched",
        OPENSTAX: "OpenStax",
    }
    return f"{sets[task.set][0].upper()}{sets[task.set][1:]}, by {hosts[task.host]}"


def section(found: Mapping[str, Any]) -> list[str]:
    """The lines of docs/evidence.md on the experiment."""
    lines: list[str] = []
    for task in tasks():
        if task.folder not in found:
            lines += [f"### {title(task)}", "", "Not trained yet.", ""]
            continue
        own = found[task.folder]
        left = f" {len(own['waiting'])} of {len(task.rows)} rows are not trained yet." if own["waiting"] else ""
        lines += [
            f"### {title(task)}",
            "",
            f"{own['pairs']['all']:,} test pairs, {own['pairs']['abstract']:,} abstract and "
            f"{own['pairs']['literal']:,} literal; {len(own['seeds'])} seeds.{left}",
            "",
            *table(own, claims_of(task)),
            "",
            *rows_table(own),
            "",
            *front_table(own),
            *recalls_table(own),
        ]
    return lines


def front_table(found: Mapping[str, Any]) -> list[str]:
    """What weights gain on abstract pairs and cost on literal ones, by how uneven they are; nothing without sizes."""
    fronts = front(found)
    if not fronts:
        return []
    lines = [
        "Abstract and literal pairs above uniform weights, by effective sample size:",
        "",
        f"| weights | {' | '.join(f'{size} %' for size in SIZES)} |",
        "|---" * (1 + len(SIZES)) + "|",
    ]
    for name, points in fronts.items():
        at = {size: f"{abstract:+.1f}, {literal:+.1f}" for size, abstract, literal in points}
        lines.append(f"| {name} | {' | '.join(at.get(size, '-') for size in SIZES)} |")
    return [*lines, ""]


def recalls_table(found: Mapping[str, Any]) -> list[str]:
    """How often the image of a caption, and of its description, is found; nothing without descriptions."""
    rows = {row: own["images of"] for row, own in found["rows"].items() if "images of" in own}
    if not rows:
        return []
    heads = list(next(iter(rows.values()))["abstract"])
    lines = [
        "The image of a caption, and of its literal description, among those of its fold, in per cent; abstract / "
        "literal pairs, means of the seeds:",
        "",
        f"| row | {' | '.join(heads)} |",
        "|---" * (1 + len(heads)) + "|",
    ]
    for row, own in rows.items():
        cells = [" / ".join(f"{np.mean(own[kind][head]):.1f}" for kind in ("abstract", "literal")) for head in heads]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return [*lines, ""]


def rows_table(found: Mapping[str, Any]) -> list[str]:
    """The rows of a task: right choices by kind of pair, and what a row gains over the host."""
    heads = ["row", "rate", "effective size in training, %", "abstract, %", "literal, %", "abstract above uniform"]
    heads += ["literal above uniform", "of the oracle's gain"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row, own in found["rows"].items():
        sizes = own.get("sizes")
        above = own.get("above uniform", {})
        share = recovered(found, row)
        cells = [
            row,
            f"{own['rate']:g}{'' if own['inner'] else ' (last tried)'}",
            f"{100 * min(low for low, _ in sizes):.0f} to {100 * max(high for _, high in sizes):.0f}" if sizes else "-",
            *(_spread(own[kind]) for kind in ("abstract", "literal")),
            *(_above(above.get(kind)) for kind in ("abstract", "literal")),
            "-" if share is None else f"{100 * share:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(by_seed: Sequence[float]) -> str:
    return f"{np.mean(by_seed):.1f} ({min(by_seed):.1f} to {max(by_seed):.1f})"


def _above(effect: Mapping[str, float] | None) -> str:
    return "-" if effect is None else _interval(effect)
