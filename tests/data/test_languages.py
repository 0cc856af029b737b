"""Queries and texts in a language that an encoder does not read are noticed."""

from __future__ import annotations

import pytest

from subtext.data import languages
from subtext.data.languages import MANY, foreign_texts, is_foreign, language_of, of_vocabulary

SHORT = {
    "en": ["a dog on the beach", "old bridge", "children playing", "women at work", "two boats", "the harbour"],
    "de": ["ein Hund am Strand", "alte Brücke", "spielende Kinder", "Frauen bei der Arbeit", "zwei Boote", "der Hafen"],
    "fr": ["un chien sur la plage", "vieux pont", "enfants qui jouent", "femmes au travail", "deux bateaux"],
    "es": ["un perro en la playa", "puente viejo", "niños jugando", "mujeres en el trabajo", "dos barcos"],
    "it": ["un cane sulla spiaggia", "ponte vecchio", "bambini che giocano", "donne al lavoro", "due barche"],
}


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("code", SHORT)
def test_short_queries_are_told_apart(code: str, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed:
        pytest.importorskip("fasttext")
    else:
        monkeypatch.setattr(languages, "_fasttext", lambda: None)
    found = [language_of(text) for text in SHORT[code]]
    foreign = sum(is_foreign(language, ["en"]) for language in found)
    assert foreign == 0 if code == "en" else foreign >= len(found) - 1
    for code in ("🐶 1987-118", "\n", "IMG_2041", "DSC0001 1951/120v", "qqqq"):
        assert language_of(code) == "und", code


def test_what_is_not_known_is_not_foreign() -> None:
    assert is_foreign("fr", ["en"]) and not is_foreign("en", ["en"])
    assert not is_foreign("und", ["en"]) and not is_foreign("fr", []) and not is_foreign("fr", [MANY])


def test_texts_of_another_language_are_named() -> None:
    german, english = [text for text in SHORT["de"] for _ in range(3)], SHORT["en"] * 3
    said = foreign_texts([*german, *english, None, b""], ["en"], encoder="model")
    assert "% of the texts seem to be in other languages (most of them: German) than the model reads (English)" in said
    assert not any(foreign_texts(german, reads) for reads in (["de"], [], [MANY]))
    assert not foreign_texts([*english * 9, german[0]], ["en"]) and not foreign_texts([b"", None], ["en"])
    assert not foreign_texts([*[f"xq{number} zz" for number in range(9)], german[0]], ["en"]), "tags are no sentences"


def test_languages_of_a_vocabulary_are_those_of_its_frequent_words() -> None:
    assert of_vocabulary({"the": 90, "dog": 9, "hund": 3}) == ("en",)
    assert set(of_vocabulary({"the": 50, "und": 40, "der": 20})) == {"en", "de"}
    assert of_vocabulary({"xyzzy": 4, "in": 9}) == ()
