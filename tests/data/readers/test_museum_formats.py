"""IIIF manifests and LIDO as files on disk, with images beside them; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from subtext.data.read import read
from subtext.errors import DataError

PRESENTATION = "http://iiif.io/api/presentation/"


def images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (len(name), 40, 90)).save(folder / name)
    return folder


def version_2(folder: Path) -> Path:
    def canvas(number: int, address: str, **more: object) -> dict[str, object]:
        service = {"@id": "https://iiif.example.org/image/page-2", "profile": "level2"} if number == 2 else {}
        resource = {"@id": address, "@type": "dctypes:Image", **({"service": service} if service else {})}
        return {"@type": "sc:Canvas", "label": f"f. {number}r", "images": [{"resource": resource}], **more}

    manifest = {
        "@context": f"{PRESENTATION}2/context.json",
        "@id": "https://example.org/book",
        "@type": "sc:Manifest",
        "label": "Book of <b>Hours</b>",
        "description": [
            {"@value": "Ein Buch", "@language": "de"},
            {"@value": "A book &amp; its pages", "@language": "en"},
        ],
        "attribution": "Example Library",
        "license": "https://creativecommons.org/publicdomain/zero/1.0/",
        "metadata": [{"label": "Place", "value": ["Paris", "Lyon"]}, {"label": "Date", "value": "1450"}],
        "sequences": [
            {
                "canvases": [
                    canvas(1, "https://example.org/files/one%20a.jpg"),
                    canvas(2, "https://iiif.example.org/image/page-2/full/full/0/native.jpg"),
                    canvas(3, "https://example.org/files/gone.jpg"),
                ]
            }
        ],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return images(folder, "one a.jpg", "scans/page-2.png")


def test_iiif_presentation_2(tmp_path: Path) -> None:
    version_2(tmp_path)
    with pytest.raises(DataError, match=r"manifest.json canvas 3: 'https://example.org/files/gone.jpg' is not beside"):
        read(tmp_path)
    data = read(tmp_path, on_error="skip", verify=True)
    assert data.images.ids == ["one a.jpg", "scans/page-2.png"]
    assert data.texts.values == ["Book of Hours", "A book & its pages", "Ein Buch"]
    assert data.texts.metadata["language"] == ["und", "en", "de"]
    assert len(data.links) == 6, "the texts of a manifest are those of each of its canvases"
    assert {name: column for name, column in data.images.metadata.items() if name != "language"} == {
        "place": [["Paris", "Lyon"]] * 2, "date": ["1450"] * 2, "credit": ["Example Library"] * 2,
        "rights": ["https://creativecommons.org/publicdomain/zero/1.0/"] * 2, "label": ["f. 1r", "f. 2r"],
    }  # fmt: skip
    assert read(tmp_path / "manifest.json", on_error="skip").images.ids == data.images.ids


def test_iiif_presentation_3(tmp_path: Path) -> None:
    def canvas(name: str, **more: object) -> dict[str, object]:
        body = {"id": f"https://iiif.example.org/{name}/full/max/0/default.jpg", "type": "Image"}
        page = {"type": "AnnotationPage", "items": [{"type": "Annotation", "motivation": "painting", "body": body}]}
        return {"type": "Canvas", "items": [page], **more}

    manifest = {
        "@context": f"{PRESENTATION}3/context.json",
        "id": "https://example.org/map",
        "type": "Manifest",
        "label": {"de": ["Karte"], "en": ["Map of Łódź"]},
        "summary": {"none": ["Drawn by hand."]},
        "requiredStatement": {"label": {"en": ["Held by"]}, "value": {"en": ["City Archive"]}},
        "navDate": "1821-05-01T00:00:00Z",
        "metadata": [{"label": {"en": ["Keywords"]}, "value": {"en": ["map", "city"]}}],
        "items": [canvas("map.tif", label={"none": ["recto"]}, summary={"en": ["The front."]})],
    }
    (tmp_path / "a.json").write_text(json.dumps(manifest, ensure_ascii=False))
    data = read(images(tmp_path, "map.tif"))
    assert data.texts.values == ["Map of Łódź", "Karte", "The front."]
    assert data.texts.metadata["language"] == ["en", "de", "en"]
    wanted = {"keywords": ["map", "city"], "credit": "City Archive", "date": "1821-05-01", "label": "recto"}
    assert {name: column[0] for name, column in data.images.metadata.items() if name != "language"} == wanted
    assert read(tmp_path, text_fields="keywords").texts.values == ["map", "city"]


def test_manifest_without_canvases_raises(tmp_path: Path) -> None:
    images(tmp_path, "a.jpg")
    (tmp_path / "c.json").write_text(
        json.dumps({"@context": f"{PRESENTATION}3/context.json", "type": "Collection", "items": []})
    )
    with pytest.raises(DataError, match=r"c.json: has no canvas; a collection names manifests"):
        read(tmp_path)
    (tmp_path / "c.json").write_text(f'{{"@context": "{PRESENTATION}3/context.json", ')
    with pytest.raises(DataError, match=r"c.json needs to be a JSON object"):
        read(tmp_path)


def labelled(folder: Path, name: str, **more: object) -> None:
    """A manifest of Presentation 3 with one canvas, whose image is NAME.jpg."""
    body = {"id": f"https://example.org/{name}.jpg", "type": "Image"}
    canvas = {"type": "Canvas", "items": [{"items": [{"body": body}]}]}
    content = {"@context": f"{PRESENTATION}3/context.json", "id": name, "type": "Manifest", "items": [canvas], **more}
    (folder / f"{name}.json").write_text(json.dumps(content))
    images(folder, f"{name}.jpg")


def test_each_language_of_a_manifest_is_a_text(tmp_path: Path) -> None:
    label = {"de": ["Bibel"], "la": ["Biblia", "Vulgata"], "fr": ["Bible"], "en": ["Bible"]}
    field = {"label": {"de": ["Stoff"], "en": ["Material"]}, "value": {"de": ["Papier"], "en": ["paper"]}}
    labelled(tmp_path, "a", label=label, summary={"de": ["Ein Buch."]}, metadata=[field])
    data = read(tmp_path)
    assert dict(zip(data.texts.values, data.texts.metadata["language"], strict=True)) == {
        "Bible": "fr", "Bibel": "de", "Biblia; Vulgata": "la", "Ein Buch.": "de",
    }  # fmt: skip
    assert data.images.metadata["material"] == [["paper", "Papier"]]
    (tmp_path / "a.json").unlink()
    labelled(tmp_path, "a", label="A book")
    data = read(tmp_path)
    assert data.texts.values == ["A book"] and "language" not in data.texts.metadata


@pytest.mark.parametrize(
    "spoilt",
    [
        f'{{"@context": "{PRESENTATION}3/context.json", "label": ',
        f'["{PRESENTATION}3/context.json"]',
        f'{{"@context": "{PRESENTATION}3/context.json", "items": [{{"items": [{{"items": [{{"body": {{"id": "http://[x"}}}}]}}]}}]}}',
        f'{{"@context": "{PRESENTATION}3/context.json", "metadata": {"[" * 5000}{"]" * 5000}}}',
    ],
    ids=["cut off", "list", "address", "nested"],
)
def test_bad_manifest_is_problem_of_itself(tmp_path: Path, spoilt: str) -> None:
    for name in "ab":
        labelled(tmp_path, name, label={"en": [name]})
    (tmp_path / "c.json").write_text(spoilt)
    with pytest.raises(DataError, match=r"has 1 problem: .*c\.json"):
        read(tmp_path)
    data = read(tmp_path, on_error="skip")
    assert data.images.ids == ["a.jpg", "b.jpg"]
    assert [problem.where.split()[0] for problem in data.problems] == ["c.json"]


def test_files_that_no_manifest_names_are_counted(tmp_path: Path) -> None:
    labelled(tmp_path, "a", label="A")
    (tmp_path / "empty.json").write_text("")
    images(tmp_path, "x/b.jpg", "c.png")
    data = read(tmp_path)
    assert [str(problem).partition(": ")[2] for problem in data.problems] == [
        "1 .json file left out, for nothing in it says what it is, first empty.json",
        "2 images left out, which no description names, first c.png",
    ]


LIDO = """<lido:lidoWrap xmlns:lido="http://www.lido-schema.org">
{records}</lido:lidoWrap>"""
OBJECT = """<lido:lido><lido:lidoRecID lido:type="local">{name}</lido:lidoRecID><lido:descriptiveMetadata xml:lang="en">
<lido:objectIdentificationWrap><lido:titleWrap><lido:titleSet><lido:appellationValue>The gavel</lido:appellationValue>
</lido:titleSet></lido:titleWrap><lido:objectDescriptionWrap><lido:objectDescriptionSet><lido:descriptiveNoteValue>
 Oak,   turned. </lido:descriptiveNoteValue></lido:objectDescriptionSet></lido:objectDescriptionWrap>
</lido:objectIdentificationWrap><lido:eventWrap>
<lido:eventSet><lido:event><lido:eventType><lido:term>Acquisition</lido:term></lido:eventType><lido:eventDate>
<lido:displayDate>1990</lido:displayDate></lido:eventDate></lido:event></lido:eventSet>
<lido:eventSet><lido:event><lido:eventType><lido:term>Production</lido:term></lido:eventType><lido:eventActor>
<lido:displayActorInRole>Ann Example, turner</lido:displayActorInRole></lido:eventActor><lido:eventDate><lido:date>
<lido:earliestDate>1821-05-01</lido:earliestDate></lido:date></lido:eventDate></lido:event></lido:eventSet>
</lido:eventWrap><lido:objectRelationWrap><lido:subjectWrap><lido:subjectSet><lido:subject><lido:subjectConcept>
<lido:term>law</lido:term><lido:term>court</lido:term></lido:subjectConcept></lido:subject></lido:subjectSet>
</lido:subjectWrap></lido:objectRelationWrap></lido:descriptiveMetadata><lido:administrativeMetadata><lido:resourceWrap>
<lido:resourceSet><lido:resourceRepresentation><lido:linkResource>{link}</lido:linkResource></lido:resourceRepresentation>
</lido:resourceSet></lido:resourceWrap></lido:administrativeMetadata></lido:lido>
"""


def test_lido_records_are_read(tmp_path: Path) -> None:
    records = OBJECT.format(name="1/1", link="https://museum.example/media/gavel.jpg") + OBJECT.format(
        name="2", link="gone.jpg"
    )
    (tmp_path / "objects.xml").write_text(LIDO.format(records=records))
    images(tmp_path, "media/gavel.jpg")
    with pytest.raises(DataError, match=r"objects.xml object 2: 'gone.jpg' is not beside the XML"):
        read(tmp_path)
    data = read(tmp_path, on_error="skip", verify=True)
    assert data.images.ids == ["media/gavel.jpg"] and data.texts.values == ["The gavel", "Oak, turned."]
    assert {name: column[0] for name, column in data.images.metadata.items()} == {
        "keywords": ["law", "court"], "byline": "Ann Example, turner", "date": "1821-05-01", "object": "1/1",
    }  # fmt: skip


def test_bad_lido_file_is_problem_of_itself(tmp_path: Path) -> None:
    for name in "ab":
        record = OBJECT.format(name=name, link=f"{name}.jpg")
        (tmp_path / f"{name}.xml").write_text(LIDO.format(records=record))
        images(tmp_path, f"{name}.jpg")
    (tmp_path / "c.XML").write_text(LIDO.format(records=record)[:-30])
    with pytest.raises(DataError, match=r"has 1 problem: .*c\.XML needs to be XML without entities"):
        read(tmp_path)
    assert read(tmp_path, on_error="skip").images.ids == ["a.jpg", "b.jpg"]


def test_no_object_of_a_damaged_lido_file_counts(tmp_path: Path) -> None:
    images(tmp_path, "a.jpg", "b.jpg")
    for name in ("a", "b"):
        records = OBJECT.format(name=name, link=f"https://example.org/{name}.jpg")
        (tmp_path / f"{name}.xml").write_text(LIDO.format(records=records))
    (tmp_path / "a.xml").write_text((tmp_path / "a.xml").read_text().removesuffix("</lido:lidoWrap>"))
    data = read(tmp_path, on_error="skip")
    assert list(data.images.ids) == ["b.jpg"] and any("a.xml needs to be XML" in str(it) for it in data.problems)


EVENT = """<lido:eventSet><lido:event><lido:eventType><lido:conceptID>http://terminology.lido-schema.org/{id}</lido:conceptID>
<lido:term>{kind}</lido:term></lido:eventType>{actors}<lido:eventDate>{date}</lido:eventDate></lido:event></lido:eventSet>"""
ACTOR = """<lido:eventActor><lido:actorInRole><lido:actor><lido:nameActorSet><lido:appellationValue>{other}
</lido:appellationValue><lido:appellationValue lido:pref="preferred">{name}</lido:appellationValue></lido:nameActorSet>
</lido:actor><lido:roleActor><lido:term>{role}</lido:term></lido:roleActor></lido:actorInRole></lido:eventActor>"""


def test_makers_and_dates_of_lido(tmp_path: Path) -> None:
    owner, maker = (
        ACTOR.format(other="X", name=name, role=role) for name, role in (("Owner", "Sammler"), ("A. B.", "Maler"))
    )
    second = "<lido:eventActor><lido:displayActorInRole>Werkstatt C</lido:displayActorInRole></lido:eventActor>"
    span = "<lido:date><lido:earliestDate>1885</lido:earliestDate><lido:latestDate>1895</lido:latestDate></lido:date>"
    events = EVENT.format(id="lido00001", kind="Erwerb", actors=owner, date="<lido:displayDate>1990</lido:displayDate>")
    events += EVENT.format(id="lido00224", kind="Entwurf", actors=maker, date="")
    events += EVENT.format(id="lido00007", kind="Herstellung", actors=second + maker, date=span)
    start, _, rest = OBJECT.format(name="1", link="a.jpg").partition("<lido:eventWrap>")
    record = f"{start}<lido:eventWrap>{events}</lido:eventWrap>{rest.partition('</lido:eventWrap>')[2]}"
    german = '<lido:appellationValue xml:lang="de">Der Hammer</lido:appellationValue>'
    record = record.replace("</lido:titleSet>", f"{german}</lido:titleSet>")
    (tmp_path / "o.xml").write_text(LIDO.format(records=record))
    data = read(images(tmp_path, "a.jpg"))
    metadata = {name: column[0] for name, column in data.images.metadata.items()}
    assert metadata["byline"] == ["Werkstatt C", "A. B. (Maler)"] and metadata["date"] == "1885/1895"
    assert dict(zip(data.texts.values, data.texts.metadata["language"], strict=True)) == {
        "The gavel": "en", "Der Hammer": "de", "Oak, turned.": "en",
    }  # fmt: skip


def test_lido_with_entities_raises(tmp_path: Path) -> None:
    text = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + LIDO.format(
        records=OBJECT.format(name="&a;", link="a.jpg")
    )
    (tmp_path / "objects.xml").write_text(text)
    with pytest.raises(DataError, match=r"objects.xml needs to be XML without entities"):
        read(images(tmp_path, "a.jpg"))


def manifest(folder: Path, *addresses: str, **more: object) -> Path:
    """A manifest of Presentation 2 with a canvas per address."""
    canvases = [{"label": address, "images": [{"resource": {"@id": address}}]} for address in addresses]
    content = {"@context": f"{PRESENTATION}2/context.json", "label": "A", "sequences": [{"canvases": canvases}], **more}
    (folder / "m.json").write_text(json.dumps(content))
    return folder


API = "https://iiif.example.org/iiif"


def test_shared_image_api_file_name_matches_nothing(tmp_path: Path) -> None:
    manifest(tmp_path, f"{API}/p1/full/max/0/default.jpg", f"{API}/x%2Fp2/full/max/0/default.jpg")
    images(tmp_path, "p1/full/max/0/default.jpg", "x/p2/full/max/0/default.jpg")
    assert read(tmp_path).images.ids == ["p1/full/max/0/default.jpg", "x/p2/full/max/0/default.jpg"]
    (tmp_path / "x/p2/full/max/0/default.jpg").unlink()
    assert read(tmp_path, on_error="skip").images.ids == ["p1/full/max/0/default.jpg"]
    images(tmp_path, "scans/p2.tif")
    assert read(tmp_path).images.ids == ["p1/full/max/0/default.jpg", "scans/p2.tif"]


def test_equal_image_names_are_resolved_by_folder(tmp_path: Path) -> None:
    images(tmp_path, "A/001.jpg", "B/001.jpg", "A/002.tif", "B/002.jpg", "MS.jpg")
    site = "https://example.org/media"
    manifest(tmp_path, f"{site}/B/001.jpg", f"{site}/A/001.jpg", f"{site}/A/002.jpg")
    assert read(tmp_path).images.ids == ["B/001.jpg", "A/001.jpg", "A/002.tif"]
    manifest(tmp_path, f"{site}/B/001.jpg", f"{site}/001.jpg", f"{site}/MS.2")
    data = read(tmp_path, on_error="skip")
    assert data.images.ids == ["B/001.jpg"]
    assert [problem.what for problem in data.problems] == [
        f"'{site}/001.jpg' may be any of A/001.jpg, B/001.jpg; keep the address' folders, or one file",
        f"'{site}/MS.2' is not beside the manifest, and nothing is downloaded",
        "4 images left out, which no description names, first A/001.jpg",
    ]
    (tmp_path / "m.json").unlink()
    links = {"1": f"{site}/B/001.jpg", "2": "001.jpg", "3": f"{API}/002/full/max/0/default.jpg", "4": r"X:\A\001.jpg"}
    objects = "".join(OBJECT.format(name=name, link=link) for name, link in links.items())
    (tmp_path / "o.xml").write_text(LIDO.format(records=objects))
    data = read(tmp_path, on_error="skip")
    assert data.images.ids == ["B/001.jpg", "A/001.jpg"]
    fatal = [problem for problem in data.problems if problem.fatal]
    assert [problem.where for problem in fatal] == ["o.xml object 2", "o.xml object 3"]
    assert all("may be any of" in problem.what for problem in fatal)


def test_labels_equal_to_reserved_columns_stay_metadata(tmp_path: Path) -> None:
    labels = ("ID", "Split", "Caption", "Text", "Group", "Headline", "Maker")
    metadata = [{"label": label, "value": f"its {label}"} for label in labels]
    manifest(images(tmp_path, "a.jpg"), "a.jpg", metadata=metadata, description="A page")
    data = read(tmp_path)
    assert data.images.ids == ["a.jpg"] and data.texts.values == ["A", "A page"]
    renamed = {f"metadata {label.casefold()}": [f"its {label}"] for label in labels[:-1]}
    assert data.images.metadata == {**renamed, "maker": ["its Maker"], "label": ["a.jpg"]}


def test_image_belongs_to_one_address(tmp_path: Path) -> None:
    """Where the folders of several addresses are gone, nothing says whose image it is; else their folders say it."""
    images(tmp_path, "001.jpg", "B/002.jpg")
    site = "https://example.org/media"
    manifest(tmp_path, f"{site}/A/001.jpg", f"{site}/B/001.jpg", f"{site}/A/002.jpg", f"{site}/B/002.jpg")
    data = read(tmp_path, on_error="skip")
    assert data.images.ids == ["B/002.jpg"] and data.texts.values == ["A"]
    assert [str(problem).partition(";")[0] for problem in data.problems] == [
        f"m.json canvas 1: '{site}/A/001.jpg' and '{site}/B/001.jpg' both end at 001.jpg",
        f"m.json canvas 2: '{site}/B/001.jpg' and '{site}/A/001.jpg' both end at 001.jpg",
        f"m.json canvas 3: '{site}/A/002.jpg' and '{site}/B/002.jpg' both end at B/002.jpg",
    ]
    manifest(tmp_path, f"{API}/001/full/200,/0/default.jpg", f"{API}/001/full/max/0/default.jpg")
    assert read(tmp_path).images.ids == ["001.jpg"]
    (tmp_path / "m.json").unlink()
    links = {"1": f"{site}/A/001.jpg", "2": f"{site}/B/001.jpg", "3": f"{site}/B/002.jpg", "4": f"{site}/B/002.jpg"}
    objects = "".join(OBJECT.format(name=name, link=link) for name, link in links.items())
    (tmp_path / "o.xml").write_text(LIDO.format(records=objects))
    data = read(tmp_path, on_error="skip")
    assert data.images.ids == ["B/002.jpg"]
    assert [problem.where for problem in data.problems] == ["o.xml object 1", "o.xml object 2", "o.xml object 4"]
