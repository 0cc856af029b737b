"""Published tables: their numbers agree with each other, and recipes have the options of their rows."""

from __future__ import annotations

import pytest

from reproduce.tables.figure_names import FIGURES, LENGTHS
from reproduce.tables.specification import (
    DATA_SETS,
    RATIOS,
    ByData,
    PublishedTable,
    Row,
    Shared,
    System,
    both_ways,
    tables,
)
from subtext.errors import RecipeError
from subtext.evaluation.evaluate import words
from subtext.recipes import catalogue
from subtext.recipes.catalogue import plan_options, read_options
from subtext.training.plan import Plan

pytestmark = pytest.mark.contract

NAMES = [f"eccv2020_{each}" for each in ("flickr30k", "table1", "table2", "table3", "table4")]
NAMES += [f"cvprw2022_table{number}" for number in (1, 2, 3)]
NAMES += [f"daa2022_table{number}" for number in (1, 2, 3, 4)]
NAMES += ["ascl2024_figure3", "ascl2024_figure4", "ascl2024_figure5", "ascl2024_table1", "ascl2024_table2"]
ROWS = [(name, row.key) for name, table in tables().items() for row in table.rows if row.system]


def row(name: str, key: str) -> Row:
    return next(each for each in tables()[name].rows if each.key == key)


def printed(name: str, key: str, data: str) -> tuple[float | None, ...]:
    columns = tables()[name].columns
    return tuple(value for value, column in zip(row(name, key).printed, columns, strict=True) if column.data == data)


def test_all_tables_are_registered() -> None:
    assert sorted(tables()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_table_columns_and_plan_are_valid(name: str) -> None:
    table = tables()[name]
    assert set(table.data) <= set(DATA_SETS)
    assert all(column.figure in FIGURES for column in table.columns if column.data)
    assert read_options("training option", plan_options(Plan()), table.plan)["batch_size"] in (32, 64, 128)


@pytest.mark.parametrize(("name", "key"), ROWS)
def test_row_options_exist_in_recipes(name: str, key: str) -> None:
    """A host or method that there is not yet may be named; an option that one does not have may not."""
    system = row(name, key).system
    assert system is not None
    assert not system.lacks().startswith("the option")
    for data in tables()[name].data:
        chosen = system.on(data)
        parts = [(catalogue.models()[chosen.model], chosen.options)] if chosen.model in catalogue.models() else []
        parts += [(catalogue.methods()[m], o) for m, o in chosen.methods if m in catalogue.methods()]
        for recipe, options in parts:
            recipe.arguments({name: value for name, value in options.items() if not isinstance(value, Shared)})


@pytest.mark.parametrize(("name", "key"), ROWS)
def test_row_plan_has_only_training_options(name: str, key: str) -> None:
    system = row(name, key).system
    assert system is not None
    for data in (*tables()[name].data, "mine"):
        plan = {**tables()[name].plan, **system.on(data).plan}
        assert read_options("training option", plan_options(Plan()), plan).items() >= plan.items()


def test_daa_plans_equal_published_section() -> None:
    def of(name: str, key: str, data: str) -> tuple[dict[str, object], dict[str, object]]:
        system = row(name, key).system
        assert system is not None
        there = system.on(data)
        return dict(there.options), {**tables()[name].plan, **there.plan}

    options, plan = of("daa2022_table1", "pcme_bert_daa", "coco")
    assert (
        options.items()
        >= {"samples": 5, "embed_dim": 1024, "init_scale": 15.0, "init_shift": 15.0, "kl_weight": 1e-5}.items()
    )
    told = {"epochs": 70, "freeze_epochs": 30, "backbone_lr_scale": 0.1, "lr": 1.5e-4, "batch_size": 128}
    assert plan.items() >= {**told, "optimiser": "adamp", "schedule": "cosine", "warmup": 3 / 70}.items()
    options, plan = of("daa2022_table2", "pcme", "cub")
    wanted = {"samples": 5, "embed_dim": 512, "init_scale": 5.0, "init_shift": 5.0, "kl_weight": 1e-3}
    assert options.items() >= {**wanted, "uniformity_weight": 10.0}.items()
    assert (plan["batch_size"], plan["freeze_epochs"], plan["lr"]) == (150, 10, 1.5e-4)
    assert tables()["daa2022_table2"].pixels["image"] == "resnet-50"
    for name, data, epochs, drop in (
        ("daa2022_table1", "coco", 40, 30),
        ("daa2022_table3", "flickr30k", 50, 40),
    ):
        _, plan = of(name, "saf_daa", data)
        assert (plan["epochs"], plan["step_epochs"], plan["lr"], plan["optimiser"]) == (epochs, drop, 6e-4, "adam")


def test_figure_four_prints_alignment_and_uniformity() -> None:
    assert [column.figure for column in tables()["ascl2024_figure4"].columns][4:] == [
        "text/uniformity",
        "text/uniformity_variance",
    ]
    for key, numbers in (("ascl", (1.393, 0.032)), ("without_both", (1.391, 0.039))):
        assert printed("ascl2024_figure4", key, "coco") == (None, None, None, None, *numbers)


def test_figure_five_columns_equal_evaluated_lengths() -> None:
    assert [f"words {size}" for size in LENGTHS] == words()


def test_ascl_lr_depends_on_dataset() -> None:
    for each in tables()["ascl2024_table1"].rows:
        if each.system is not None:
            assert each.system.on("flickr30k").plan["lr"] == 2e-4 and each.system.on("coco").plan["lr"] == 5e-4


def test_printed_averages_equal_mean_of_printed_cells() -> None:
    """To rounding: what was copied wrongly shows."""
    for each in tables()["cvprw2022_table2"].rows:
        *cells, average = each.printed
        if average is not None:
            assert average == pytest.approx(sum(cells) / 8, abs=5.1e-5), each.key


def test_numbers_printed_twice_are_equal() -> None:
    same = [
        (("eccv2020_table1", "ours", "politics"), ("eccv2020_table4", "ours", "politics")),
        (("eccv2020_table1", "ours", "goodnews"), ("eccv2020_table4", "ours", "goodnews")),
        (("eccv2020_table1", "ours_trip", "coco"), ("eccv2020_table2", "ours_trip", "coco")),
        (("cvprw2022_table2", "diversity", "politics"), ("cvprw2022_table3", "div", "politics")),
        (("cvprw2022_table2", "discrepancy", "politics"), ("cvprw2022_table3", "dis", "politics")),
    ]
    assert all(printed(*one) == printed(*other) for one, other in same)


def test_printed_numbers_equal_reference_values() -> None:
    averages = {each.key: each.printed[-1] for each in tables()["cvprw2022_table2"].rows}
    told = {"pvse": 0.7053, "thomas": 0.7197, "hal": 0.7232, "mithun": 0.7184, "amrani": 0.7222}
    assert averages.items() >= (told | {"discrepancy": 0.7348, "diversity": 0.7393}).items()
    assert printed("cvprw2022_table3", "random", "politics") == (0.5777, 0.5780)
    assert printed("cvprw2022_table3", "dis_text", "politics") == (0.6032, 0.6006)


def test_daa_tables_agree_on_shared_numbers() -> None:
    """Table 4 is the 5K half of Table 1; what DAA adds there is what the text says."""
    for mine, theirs in (("pcme_bert", "pcme_bert"), ("daa", "pcme_bert_daa")):
        assert printed("daa2022_table4", mine, "coco") == printed("daa2022_table1", theirs, "coco")[6:]
    with_daa, without = (printed("daa2022_table4", key, "coco") for key in ("daa", "pcme_bert"))
    gains = [100 * (ours - theirs) for ours, theirs in zip(with_daa, without, strict=True)]
    assert [gains[place] for place in (1, 2, 4, 5)] == pytest.approx([2.6, 4.1, 1.9, 2.8])
    gain = [
        100 * (a - b)
        for a, b in zip(
            printed("daa2022_table3", "sgraf_daa", "flickr30k"),
            printed("daa2022_table3", "sgraf", "flickr30k"),
            strict=True,
        )
    ]
    assert gain == pytest.approx([0.9, 16.4, 1.4, 8.6])


def test_ascl_tables_agree_on_shared_numbers() -> None:
    """Table II has R@1 and R@5 of what Table I has; what the text says of the ablations is what the cells say."""
    for data in ("coco", "flickr30k"):
        first, second = (printed(f"ascl2024_table{number}", "ascl", data) for number in (1, 2))
        assert [first[place] for place in (0, 1, 3, 4)] == list(second)
    ours, best = (printed("ascl2024_table1", key, "coco") for key in ("ascl", "lexlip"))
    assert [100 * (ours[place] - best[place]) for place in (0, 3)] == pytest.approx([24.6, 13.5])
    assert printed("ascl2024_table2", "without_both", "flickr30k") == (0.988, 0.994, 0.764, 0.915)
    assert printed("ascl2024_table2", "without_mf", "coco")[0] == 0.397


def test_only_untrainable_rows_have_no_system() -> None:
    alone = {each.key for each in tables()["ascl2024_table1"].rows if each.system is None}
    assert alone == {"dime", "tags_dc", "uniter_dg", "soho", "vista", "cots", "lightningdot", "lexlip"}


def test_system_values_depend_on_dataset() -> None:
    system = System("pvse", {"views": ByData({"coco": 3}, 2)}, (("mithun", {"hardest_only": ByData({}, True)}),))
    assert system.on("coco").options == {"views": 3} and system.on("mine").options == {"views": 2}
    assert system.on("coco").methods == (("mithun", {"hardest_only": True}),)


def test_goodnews_row_is_distance_weighted_sampling() -> None:
    assert printed("cvprw2022_table2", "distance", "goodnews") == (0.7972, 0.7964)
    found = row("cvprw2022_table2", "distance").printed
    assert [value for value in found if value is not None] == [0.7972, 0.7964]


def test_ratio_is_swept_where_paper_gives_none() -> None:
    system = row("cvprw2022_table2", "combined_val").system
    assert system is not None
    for data, ratio in {"coco": (1, 4), "goodnews": (4, 1), "politics": (3, 1), "conccap": (3, 1)}.items():
        there = system.on(data)
        assert not there.swept and there.at((5, 1)) == there
        assert (there.methods[0][1]["beta"], there.methods[0][1]["gamma"]) == ratio
    own = system.on("mine")
    assert own.swept and not own.at((2, 1)).swept
    assert own.at((2, 1)).methods[0][1].items() >= {"beta": 2.0, "gamma": 1.0}.items()
    swept = [key for name, key in ROWS if (it := row(name, key).system) is not None and it.on("mine").swept]
    assert swept == ["combined_val"], "no other row leaves its options open"


def test_ratio_grid_equals_published_one() -> None:
    assert RATIOS == ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (1, 5), (5, 1))


def test_system_names_missing_model_or_option() -> None:
    assert System("telepathy").lacks() == "the model telepathy"
    assert System("vse", {"aura": 1}).lacks() == "the option aura of the model vse"
    assert System("vse", {}, (("telepathy", {}),)).lacks() == "the method telepathy"
    assert System("vse", {}, (("mithun", {"aura": 1}),)).lacks() == "the option aura of the method mithun"
    assert System("vse", {}, (("mithun", {"hardest_only": True}),)).lacks() == ""


def test_inconsistent_row_raises() -> None:
    columns = both_ways(("coco",))
    with pytest.raises(RecipeError, match="2 printed numbers and a baseline among the rows; 'a' has 1 numbers"):
        PublishedTable("t", "p", columns, (Row("a", "A", None, (0.1,)),), {}, {}, ())
    with pytest.raises(RecipeError, match="baseline 'b'"):
        PublishedTable("t", "p", columns, (Row("a", "A", None, (0.1, 0.2), baseline="b"),), {}, {}, ())
    with pytest.raises(RecipeError, match="no row called 'pvs'; did you mean pvse"):
        tables()["cvprw2022_table2"].select(["pvs"])
