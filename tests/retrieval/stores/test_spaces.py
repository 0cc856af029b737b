"""The derived spaces of an index, sentences and neighbours, in each store: what is kept, and how it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import stored_items

from subtext.retrieval import neighbours
from subtext.retrieval.manifest import EncoderRecord
from subtext.retrieval.neighbours import NEAREST, TEMPERATURE, near_of, refresh, without_lenders
from subtext.retrieval.stores.errors import IndexLockedError
from subtext.retrieval.stores.item import SPACES, Change, DerivedRow, IndexEntry
from subtext.retrieval.stores.registry import create_store, open_store
from subtext.retrieval.stores.store import Store, View, Writer
from subtext.retrieval.verification import damage

E = 6
ENCODER = EncoderRecord("starter", "e" * 32, E, ("en",))


def sentence(name: str) -> np.ndarray:
    """A unit vector, a function of the text alone."""
    drawn = np.random.default_rng(list(name.encode())).standard_normal(E).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


def picture(number: int, version: int = 0) -> IndexEntry:
    # Every seventh picture is a copy of the one before it.
    content = b"copy %d" % (number // 7) if number % 7 < 2 else b"c%d.%d" % (number, version)
    return IndexEntry(f"p{number}", content, path=f"shots/{number}.png", metadata={"place": "Köln", "number": number})


def put_pictures(writer: Writer, numbers: list[int], version: int = 0) -> None:
    vectors = np.concatenate(
        [stored_items.vectors(range(n + 1000 * version, n + 1000 * version + 1), 2) for n in numbers]
    )
    writer.put(Change("images", [picture(n, version) for n in numbers], vectors))


def put_texts(writer: Writer, texts: dict[str, tuple[str, list[str]]], *, exact: bool = True) -> None:
    """Id -> words and the images of a text; one without words gets no sentence vector."""
    entries = [IndexEntry(name, said.encode(), text=said) for name, (said, _) in texts.items()]
    vectors = np.concatenate([stored_items.vectors(range(len(name), len(name) + 1), 1) for name in texts])
    derived = {name: DerivedRow(sentence(said)) for name, (said, _) in texts.items() if said}
    links = [(image, name) for name, (_, images) in texts.items() for image in images]
    exact_texts = frozenset(texts) if exact else frozenset()
    writer.put(Change("texts", entries, vectors, links=links, exact_texts=exact_texts, derived={"sentences": derived}))


@pytest.fixture
def place(address_of: Callable[[str], str]) -> Iterator[Store]:
    store = create_store(address_of("spaces"), replace(stored_items.manifest(), encoder=ENCODER))
    yield store
    store.remove()
    store.close()


def expected(view: View) -> dict[str, tuple[list[str], np.ndarray]]:
    """Id of an image -> its neighbours and their mean, by plain loops over all pairs."""
    images = {row.id: row for row in view.rows("images", keys=view.keys("images").tolist(), links=True)}
    texts = {row.key: row for row in view.rows("texts", keys=view.keys("texts").tolist())}
    vectors = {name: view.vectors_of("images", [name])[0].astype(np.float64) for name in images}
    lent: dict[str, np.ndarray] = {}
    for name, row in images.items():
        said = [sentence(texts[key].text) for key in sorted(row.links) if texts[key].text]  # type: ignore[arg-type]
        if said:
            total = np.sum(np.array(said, dtype=np.float64), axis=0)
            lent[name] = total / np.linalg.norm(total)
    result = {}
    for name, row in images.items():
        scored = []
        for other in lent:
            if other != name and images[other].content != row.content:
                cosine = max(float(u @ v) for u in vectors[name] for v in vectors[other])
                scored.append((-round(cosine, 7), images[other].key, other))
        best = sorted(scored)[:NEAREST]
        if best:
            weights = np.exp(np.array([-score for score, *_ in best]) / TEMPERATURE)
            mean = sum(weight * lent[other] for weight, (_, _, other) in zip(weights, best, strict=True))
            result[name] = [other for *_, other in best], mean / np.linalg.norm(mean)
    return result


def stored(view: View) -> dict[str, tuple[list[str], np.ndarray]]:
    keys = view.keys("images")
    names = {row.key: row.id for row in view.rows("images", keys=keys.tolist())}
    vectors, there = view.vectors_in("neighbours", keys)
    near = near_of(view, keys)
    assert sorted(near) == sorted(keys[there].tolist())
    return {
        names[key]: ([names[other] for _, other in near[key]], vectors[row, 0])
        for row, key in enumerate(keys.tolist())
        if there[row]
    }


def assert_equal_to_recomputation(store: Store) -> None:
    with store.reading() as view:
        now, wanted = stored(view), expected(view)
        assert {name: near for name, (near, _) in now.items()} == {name: near for name, (near, _) in wanted.items()}
        for name, (_, vector) in now.items():
            np.testing.assert_allclose(vector, wanted[name][1], atol=1e-5)
        texts = view.rows("texts", keys=view.keys("texts").tolist())
        said = [row for row in texts if row.text]
        vectors, there = view.vectors_in("sentences", np.array([row.key for row in texts], dtype=np.int64))
        assert there.tolist() == [bool(row.text) for row in texts]
        for row in said:
            np.testing.assert_array_equal(vectors[texts.index(row), 0], sentence(row.text or ""))
        rows = len(now) + int(np.isnan(view.derived("neighbours")[2]).sum())
        assert view.space_counts == {**view.counts, "sentences": len(said), "neighbours": rows}
    assert damage(store) == []


@pytest.mark.parametrize("compared", [neighbours.COMPARED, 0], ids=["all compared", "found by the store"])
def test_neighbours_after_any_changes_equal_those_computed_from_scratch(
    place: Store, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "COMPARED", compared)
    draw = np.random.default_rng(0)
    with place.writing("build") as writer:
        put_pictures(writer, list(range(24)))
        put_texts(
            writer, {f"t{n}": (f"words of {n}" if n % 5 else "", [f"p{n}", f"p{(n + 3) % 24}"]) for n in range(12)}
        )
        refresh(writer)
    assert_equal_to_recomputation(place)
    names, version = 12, 0
    for _ in range(6):
        with place.writing("update") as writer:
            for kind in draw.choice(["add", "replace", "delete", "say", "unsay", "reword", "link"], 3):
                images, texts = writer.ids("images"), writer.ids("texts")
                some = [str(name) for name in draw.choice(images, 2, replace=False)]
                if kind == "add":
                    last = max(int(name[1:]) for name in images)
                    put_pictures(writer, [last + 1, last + 2])
                elif kind == "replace":
                    version += 1
                    put_pictures(writer, [int(name[1:]) for name in some], version)
                elif kind == "delete":
                    writer.delete("images", some)
                elif kind == "say":
                    names += 1
                    put_texts(writer, {f"t{names}": (f"more {names}", some)})
                elif kind == "unsay" and texts:
                    writer.delete("texts", [str(draw.choice(texts))])
                elif kind == "reword" and texts:
                    names += 1
                    put_texts(writer, {str(draw.choice(texts)): (f"other {names}", some)})
                elif kind == "link" and texts:
                    writer.put(Change("texts", links=[(some[0], str(draw.choice(texts)))]))
            if draw.random() < 0.3:
                writer.compact()
            refresh(writer)
            generation = writer.manifest.generation
            assert refresh(writer) and writer.manifest.generation == generation, "there is nothing more to do"
        assert_equal_to_recomputation(place)
    place.close()
    assert_equal_to_recomputation(open_store(place.path))


def test_image_whose_neighbours_are_all_copies_is_dealt_with_once(place: Store) -> None:
    with place.writing("build") as writer:
        put_pictures(writer, [0, 1])  # Copies.
        put_texts(writer, {"t": ("a boat", ["p0", "p1"])})
        assert neighbours.rows_due(place) == 2 and refresh(writer)
        assert neighbours.rows_due(place) == 0
        generation = writer.manifest.generation
        assert refresh(writer) and writer.manifest.generation == generation, "there is nothing more to do"
        with place.reading() as view:
            assert view.space_counts["neighbours"] == 2 and not len(view.owners("neighbours")[0])
            assert view.nearest_in("neighbours", sentence("a boat")[None, None], top=3)[0].keys.tolist() == []
        assert damage(place) == []
        put_pictures(writer, [2])
        refresh(writer)
    assert_equal_to_recomputation(place)
    with place.writing("update") as writer:
        put_texts(writer, {"u": ("a gavel", ["p2"])})
        refresh(writer)
        assert neighbours.rows_due(place) == 0
    assert_equal_to_recomputation(place)
    with place.reading() as view:
        assert view.space_counts["neighbours"] == 3


def test_texts_of_a_deleted_image_leave_its_neighbours_in_the_same_change(place: Store) -> None:
    with place.writing("build") as writer:
        put_pictures(writer, list(range(2, 20)))
        put_texts(writer, {f"t{n}": (f"words of {n}", [f"p{n}"]) for n in range(2, 20)})
        refresh(writer)
        with place.reading() as view:
            key = view.keys_of("images", ["p5"])["p5"]
            having = {n for n, (near, _) in stored(view).items() if "p5" in near}
            assert having and having < set(stored(view))
        writer.delete("images", ["p5"])
        with place.reading() as view:
            left = stored(view)
            assert not having & left.keys() and not any("p5" in near for near, _ in left.values())
            assert key not in {row for near in near_of(view, view.keys("images")).values() for _, row in near}
            assert view.space_counts["sentences"] == 17
        having = {n for n, (near, _) in left.items() if "p6" in near}
        writer.delete("texts", ["t6"])
        with place.reading() as view:
            assert having and not having & stored(view).keys(), "an image that says nothing any more lends nothing"
        refresh(writer)
    assert_equal_to_recomputation(place)


def test_hidden_images_lend_nothing(place: Store) -> None:
    with place.writing("build") as writer:
        put_pictures(writer, list(range(2, 20)))
        put_texts(writer, {f"t{n}": (f"words of {n}", [f"p{n}"]) for n in range(2, 20)})
        refresh(writer)
    with place.reading() as view:
        keys = view.keys("images")
        hidden = keys[::3]
        vectors, there = without_lenders(view, keys, hidden)
        near = near_of(view, keys)
        texts = {row.links[0]: row.text for row in view.rows("texts", keys=view.keys("texts").tolist(), links=True)}
        for row, key in enumerate(keys.tolist()):
            own = [(cosine, other) for cosine, other in near[key] if other not in set(hidden.tolist())]
            mean = sum(np.exp(cosine / TEMPERATURE) * sentence(texts[other] or "") for cosine, other in own)
            np.testing.assert_allclose(vectors[row], mean / np.linalg.norm(mean), atol=1e-5)
        assert there.all()
        vectors, there = without_lenders(view, keys, keys)
        assert not there.any() and not vectors.any()


def test_spaces_are_searched_by_the_keys_of_their_items(place: Store) -> None:
    with place.writing("build") as writer:
        put_pictures(writer, list(range(2, 20)))
        put_texts(writer, {f"t{n}": (f"words of {n}", [f"p{n}"]) for n in range(2, 20)})
        refresh(writer)
        writer.delete("images", ["p4"])
        refresh(writer)
    with place.reading() as view:
        for space in SPACES:
            keys, _ = view.owners(space)
            assert len(keys) <= view.space_counts[space] and (np.diff(keys) > 0).all()
            vectors, there = view.vectors_in(space, np.append(keys, 10_000))
            assert there.tolist() == [True] * len(keys) + [False] and not vectors[-1].any()
            query = vectors[:1, :1].repeat(2, axis=0) + 0.01
            scores = (vectors[:-1, :, None] * query[0]).sum(axis=3).max(axis=(1, 2))
            order = np.lexsort((keys, -scores))
            hits = view.nearest_in(space, query, top=5)
            assert [found.keys.tolist() for found in hits] == [keys[order][:5].tolist()] * 2
            np.testing.assert_allclose(hits[0].scores, scores[order][:5], atol=1e-6)
            among = keys[1::2]
            (some,) = view.nearest_in(space, query[:1], top=3, among=among)
            assert some.keys.tolist() == [key for key in keys[order].tolist() if key in set(among.tolist())][:3]
            if view.exact_spaces:
                every, values, errors = view.scores(space, query[0])
                assert every.tolist() == keys.tolist() and (np.abs(values - scores) <= errors).all()
                np.testing.assert_allclose(values, scores, atol=1e-6)
        texts, images = view.owner_links()
        partners = view.partners("texts", view.keys("texts"))
        assert list(zip(texts.tolist(), images.tolist(), strict=True)) == [
            (text, image) for text in sorted(partners) for image in partners[text]
        ]
        assert view.fields("images") == ["number", "place"], "what is derived is no field of an item"


def test_words_of_ids_files_and_metadata_find_images(place: Store) -> None:
    entries = [
        IndexEntry("1987-118", b"a", path="box/IMG_0001.png", metadata={"place": "Köln", "who": "Anna Müller"}),
        IndexEntry("1987-119", b"b", path="box/IMG_0002.png", metadata={"place": "Bonn", "split": "train"}),
        IndexEntry("x", b"c", metadata={"tags": ["Dom", "Rhein"], "year": 1923, "map": {"x": "Deutz"}}),
    ]
    with place.writing("build") as writer:
        writer.put(Change("images", entries, stored_items.vectors(range(3), 2)))
        put_texts(writer, {"t1": ("the cathedral of Köln", ["x"]), "t2": ("a bridge", ["x"])})
    with place.reading() as view:
        names = {row.key: row.id for row in view.rows("images", keys=view.keys("images").tolist())}
        for words, wanted in (
            ("koln", ["1987-118"]), ("1987-118", ["1987-118", "1987-119"]), ("118", ["1987-118"]), ("IMG 0002", None),
            ("müller", ["1987-118"]), ("rhein", ["x"]), ("1923", ["x"]), ("deutz", ["x"]), ("train", []),
            ("cathedral", []), ("?", []),
        ):  # fmt: skip
            found = view.search_words("images", words, top=None)
            if wanted is None:
                assert next(names[key] for key, _ in found) == "1987-119"
            else:
                assert [names[key] for key, _ in found] == wanted, words
        assert len(view.search_words("images", "1987", top=1)) == 1
        assert [key for key, _ in view.search_words("texts", "koln bridge", top=None)] == [
            key for key, _ in view.search_text("koln bridge", top=9)
        ]
    with place.writing("update") as writer:
        writer.put(Change("images", amended=[replace(entries[0], metadata={"place": "Rom"})]))
        writer.delete("images", ["1987-119"])
        with place.reading() as view:
            assert not view.search_words("images", "koln bonn", top=None)
            assert len(view.search_words("images", "rom", top=None)) == 1
    assert damage(place) == []


def test_rows_of_another_moment_are_refused(place: Store) -> None:
    with place.writing("build") as writer:
        put_pictures(writer, [2, 3])
        with place.reading() as view:
            since = view.revision.change
        put_pictures(writer, [4])
        rows = {"p2": DerivedRow(sentence("a"), [1], [0.5], -np.inf)}
        with pytest.raises(IndexLockedError, match="was changed meanwhile"):
            writer.apply(Change(derived={"neighbours": rows}, since=since))
        writer.apply(Change(derived={"neighbours": {**rows, "nobody": rows["p2"]}}, since=writer.manifest.change))
    with place.reading() as view:
        assert view.space_counts["neighbours"] == 1


def test_derived_rows_of_an_unfinished_move_go_with_their_items(place: Store) -> None:
    if type(place).create_replacement is Store.create_replacement:
        return  # A store that cannot be moved has no unfinished move.
    manifest = replace(stored_items.manifest(), encoder=ENCODER, fingerprint="e" * 32)
    moving = place.create_replacement(manifest)
    for each in (place, moving):
        with each.writing("add") as writer:
            put_pictures(writer, [0, 3])
            put_texts(writer, {"t0": ("a boat", ["p0"]), "t00": ("a gavel", ["p3"])})
    assert damage(place) == []
    with place.writing("update") as writer:
        put_texts(writer, {"t0": ("a ship", ["p0"])})
        writer.delete("images", ["p3"])
        writer.compact()
    begun = place.create_replacement(manifest)
    assert stored_items.ids(begun) == {"p0"} and stored_items.ids(begun, "texts") == set()
    with begun.reading() as view:
        assert len(view.keys("sentences")) == 0
    assert damage(place) == [] == damage(begun)
    begun.close()
