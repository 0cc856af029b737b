"""What the page looks like, as far as it can be measured: an archive of made photographs, at 1,366 and 390 pixels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import browser
import coloured_images
import photographs
import pytest
import served_index
from axe_playwright_python.sync_playwright import Axe
from command import call
from PIL import Image

pytestmark = browser.needed
WIDE, PHONE = (1366, 768), (390, 844)
QUERY = "a dog in the snow"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("desk")
    data = photographs.archive(folder / "desk", 24, made=True)
    coloured_images.run(data, folder / "run")
    indexes = [folder / "archive of the press office", folder / "other"]
    for index in indexes:
        call("index", "build", index, "--run", folder / "run", "--split", "all", "--text-encoder", "none", "--quiet")
    # A file that is gone after the index was built, and one that was cut off.
    gone, cut = (next((folder / "desk").rglob(f"*-{number}_*.jpg")) for number in ("0010", "0011"))
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:500])
    with served_index.running(*indexes) as port:
        yield f"http://localhost:{port}"


@pytest.fixture
def opened(chromium, address: str) -> Iterator[object]:
    """Opens the page on a screen: opened("/?q=x", PHONE, color_scheme="dark")."""
    contexts = []

    def screen(place: str, size: tuple[int, int], **options: object):
        width, height = size
        touch = {"has_touch": True, "is_mobile": True} if width < 500 else {}
        context = chromium.new_context(
            viewport={"width": width, "height": height}, base_url=address, **touch, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.route("**/search?*", with_levels)
        page.goto(place)
        settled(page)
        return page

    yield screen
    for context in contexts:
        context.close()


def with_levels(route) -> None:
    """Levels, as a ranker gives them that has learnt from more texts than these."""
    answer = route.fetch().json()
    for place, hit in enumerate(answer["hits"]):
        hit["level"] = ("strong", "fair", "weak")[min(place // 2, 2)]
        hit["probability"] = 0.06
    route.fulfill(json=answer)


def settled(page) -> None:
    page.wait_for_selector("#columns:not([aria-busy]) .card[data-id]")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(100)


SEEN = "[...document.querySelectorAll(selector)].filter(one => one.checkVisibility() && !one.matches('.hidden'))"
OVERLAPS = f"""selector => {{
  const all = {SEEN}, wrong = [];
  for (const [place, one] of all.entries()) for (const other of all.slice(place + 1)) {{
    if (one.contains(other) || other.contains(one)) continue;
    const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
      wrong.push(`${{one.id || one.className}} ${{one.textContent.slice(0, 30)}} / ${{other.id || other.className}}`);
  }}
  return wrong;
}}"""
CUT = f"""selector => {SEEN}.flatMap(one => {{
  const box = one.getBoundingClientRect();
  const out = box.left < -1 || box.right > innerWidth + 1 || one.scrollWidth > one.clientWidth + 2;
  return out ? [`${{one.id || one.className}}: ${{one.textContent.trim().slice(0, 40)}}`] : [];
}})"""


def tidy(page, scope: str = "", *, axe: bool = True) -> None:
    """Nothing overlaps, nothing is cut, nothing scrolls sideways, and axe has no findings."""
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], "the page scrolls sideways"
    controls = "button, select, a.brand, .switch, input[type=search], .condition, h2, .status"
    assert (
        page.evaluate(
            OVERLAPS, f"{scope} :is({controls})" if scope else f".top :is({controls}), .tools :is({controls})"
        )
        == []
    )
    assert page.evaluate(CUT, f"{scope} :is(button, .chip, legend, h2, .pickone)") == []
    if not scope:
        assert page.evaluate(OVERLAPS, "#columns .card") == []
    found = Axe().run(page).response["violations"] if axe else []
    assert not found, json.dumps(
        [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found], indent=1
    )


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")])
def test_page_shows_pictures_first_and_nothing_overlaps(opened, size: tuple[int, int], scheme: str) -> None:
    page = opened(f"/?q={QUERY}", size, color_scheme=scheme)
    box, brand, controls = (page.locator(one).bounding_box() for one in ("#box", ".brand", ".tools"))
    assert box["y"] < 20 and abs(brand["y"] - box["y"]) < 8, "logo and box have the first row"
    assert box["x"] + box["width"] > size[0] - 40 and controls["y"] >= box["y"] + box["height"]
    assert page.evaluate("q.scrollWidth <= q.clientWidth"), "the query is not cut"
    assert controls["height"] <= 48, "one row of controls"
    assert page.locator("#columns .mat").first.bounding_box()["y"] <= 200
    tidy(page)
    for density in ("pictures", "details", "captions"):
        if size == PHONE:
            page.click("#open-options")
        page.check(f"input[name=density][value={density}]", force=True)
        if size == PHONE:
            tidy(page, "#options", axe=density == "details")
            page.keyboard.press("Escape")
        page.wait_for_timeout(100)
        tidy(page, axe=density == "details")


def test_page_fills_rows_of_equal_height_with_whole_pictures(opened) -> None:
    page = opened("/", WIDE)
    rows = page.evaluate(
        """() => {
          const rows = new Map();
          for (const card of document.querySelectorAll('#columns .card:not([hidden])')) {
            const mat = card.querySelector('.mat').getBoundingClientRect(), image = card.querySelector('img');
            const own = {height: mat.height, left: mat.left, right: mat.right, shape: mat.width / mat.height,
              natural: image ? image.naturalWidth / image.naturalHeight : null};
            const top = Math.round(card.getBoundingClientRect().top);
            rows.set(top, [...(rows.get(top) || []), own]);
          }
          const list = document.querySelector('#columns ul').getBoundingClientRect();
          return [[...rows.values()], list.left, list.right];
        }"""
    )
    lines, left, right = rows
    assert len(lines) > 3
    for line in lines:
        assert max(one["height"] for one in line) - min(one["height"] for one in line) < 0.5
        for one in line:
            assert one["natural"] is None or one["shape"] == pytest.approx(one["natural"], rel=0.02), (
                "nothing is cut off"
            )
    for line in lines[:-1]:
        assert line[0]["left"] == pytest.approx(left, abs=1) and line[-1]["right"] == pytest.approx(right, abs=2)
    before = lines[0][0]["height"]
    page.locator("#size").fill("380")
    page.wait_for_timeout(200)
    assert page.locator("#columns .mat").first.bounding_box()["height"] > before * 1.2
    page.reload()
    settled(page)
    assert page.locator("#columns .mat").first.bounding_box()["height"] > before * 1.2, "the size is kept"


def test_page_shows_copies_as_one_picture(opened) -> None:
    page = opened("/", WIDE)
    assert page.locator("#columns .card").count() == 27
    assert page.locator(".copies").all_inner_texts() == ["2 copies"] * 3
    assert page.locator("#columns .card:visible").count() == 24
    page.locator(".copies").first.click()
    assert page.locator("#columns .card:visible").count() == 25
    assert page.locator(".copies").first.get_attribute("aria-expanded") == "true"
    tidy(page)
    page.locator(".copies").first.click()
    assert page.locator("#columns .card:visible").count() == 24


def test_page_names_pictures_by_the_last_part_of_a_path(opened) -> None:
    page = opened("/", WIDE)
    name = page.locator(".said.file").first
    text = name.inner_text()
    assert text.endswith(".jpg") and "/" not in text
    assert name.evaluate("one => one.getClientRects().length") == 1, "in one line"
    facts = page.locator("#columns .card:has(.facts-line)").evaluate_all(
        "all => Object.fromEntries(all.map(one => [one.dataset.id, one.querySelector('.facts-line').textContent]))"
    )
    assert facts["1951-0001"] == "1951-02-02 · Genève · © Photo desk / City Archive"
    assert facts["1955-0005"] == "1955-06-06 · Zürich", "what is not known is left out"


def test_page_says_why_there_is_no_picture(opened) -> None:
    page = opened("/", WIDE)
    page.wait_for_selector(".none")
    notes = page.locator(".mat .none").all_inner_texts()
    assert len(notes) == 2 and all(note.startswith("No picture") and len(note) > 20 for note in notes)
    assert all(note.lower().count("no picture") == 1 for note in notes)
    tidy(page)


def test_page_texts_leave_room_for_their_buttons(opened) -> None:
    page = opened(f"/?q={QUERY}&target=texts", PHONE)
    for selector in (".facts-line", ".said", ".tool"):
        assert page.evaluate(OVERLAPS, f"#columns :is(.tool, {selector})") == []
    tidy(page)


def test_page_shows_steps_instead_of_numbers_and_says_why(opened) -> None:
    page = opened(f"/?q={QUERY}", WIDE)
    assert page.locator("#columns .level").nth(0).inner_text().split("\n")[0].strip().lower().startswith("strong")
    assert page.locator("#columns .level.weak").count() > 5
    assert not any("6\xa0%" in text for text in page.locator("#columns .line").all_inner_texts())
    page.locator("#columns .card .open").first.click()
    page.wait_for_selector("#detail .near section")
    text = page.inner_text("#detail")
    assert "Why it was found" in text and "Numbers: " in text and "probability 6\xa0%" in text
    assert page.locator("#detail .reasons li").count() >= 1
    tidy(page, "#detail")
    page.unroute("**/search?*")
    page.goto("/?q=a+dog+in+the+snow+once+more")
    settled(page)
    assert page.locator("#columns .level").count() == 0, "without a ranker that has learnt, there is no level"


def test_page_has_no_white_plate_in_dark_mode(opened) -> None:
    page = opened("/", WIDE, color_scheme="dark")
    page.locator("#columns .card .open").first.click()
    page.wait_for_selector("#detail .stage img")
    for surface in ("#columns .mat", "#detail .stage"):
        colour = page.locator(surface).first.evaluate("one => getComputedStyle(one).backgroundColor")
        assert max(map(int, colour.removeprefix("rgb(").removesuffix(")").split(", "))) < 60


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_page_filters_by_words_of_people_with_chips_outside(opened, size: tuple[int, int]) -> None:
    page = opened("/", size)
    page.click("#filter")
    page.wait_for_selector("#fields legend")
    names = page.locator("#fields legend").all_inner_texts()
    assert names == ["Date taken", "Place", "Photographer", "Credit", "Licence"]
    years = page.locator("input[aria-label^='Date taken']")
    assert [years.nth(place).get_attribute("placeholder") for place in (0, 1)] == ["1951", "1973"]
    page.click("#fields .chip:has-text('Havana')")
    page.click("#fields .chip:has-text('Press office')")
    page.click("#fields .chip:has-text('Photo desk')")
    settled(page)
    tidy(page, "#filters")
    if size == PHONE:
        sheet = page.locator("#filters").bounding_box()
        assert sheet["x"] == 0 and sheet["width"] == 390 and sheet["y"] + sheet["height"] == pytest.approx(844, abs=1)
        page.click("#show-filtered")
    else:
        grid = page.locator("#columns").bounding_box()
        panel = page.locator("#filters").bounding_box()
        assert panel["x"] + panel["width"] <= grid["x"], "beside the pictures"
    chips = page.locator("#conditions .condition").all_inner_texts()
    assert [chip.split("\n")[0] for chip in chips] == [
        "Place: Havana",
        "Photographer: Photo desk",
        "Photographer: Press office",
    ]
    count = page.locator("#columns .card").count()
    page.click("#conditions .condition:has-text('Press office')")
    settled(page)
    assert page.locator("#conditions .condition").count() == 2 and page.locator("#columns .card").count() < count
    tidy(page)


def test_page_keeps_judged_items_and_messages_in_one_line_on_a_phone(opened) -> None:
    page = opened(f"/?q={QUERY}&like=1950-0000&not_like=1951-0001&not_like=1952-0002", PHONE)
    assert page.locator("#pieces .piece").count() == 3
    assert page.locator(".hint").count() == 1, "the model does not know all words"
    assert page.locator("#columns .mat").first.bounding_box()["y"] <= 240
    tidy(page)
    page = opened(f"/?q={QUERY}&like=1950-0000&not_like=1951-0001", PHONE)
    cut = "(row) => row.scrollWidth > row.clientWidth"
    assert page.locator("#pieces .piece").count() == 2 and not page.locator("#pieces").evaluate(cut), "both are whole"
    assert page.locator(".weigh input").bounding_box()["width"] >= 60


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_page_selection_bar_covers_nothing_and_fits(opened, size: tuple[int, int]) -> None:
    page = opened(f"/?q={QUERY}", size)
    page.locator("#columns .select").first.dispatch_event("click")
    page.wait_for_selector("#bar:not([hidden])")
    tidy(page, "#bar")
    bar = page.locator("#bar").bounding_box()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    last = page.locator("#columns .card:visible").last.bounding_box()
    assert last["y"] + last["height"] <= bar["y"]


def test_page_can_be_used_by_keyboard_alone(opened) -> None:
    page = opened("/", WIDE)
    focus = "document.activeElement.id || document.activeElement.className"
    page.keyboard.press("/")
    assert page.evaluate(focus) == "q"
    page.keyboard.type(QUERY)
    page.keyboard.press("Enter")
    page.wait_for_url("**q=a+dog**")
    settled(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("s")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#chosen") == "1 selected"
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open] .near section")
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    page.focus("#filter")
    page.keyboard.press("Enter")
    page.wait_for_selector("#fields legend")
    page.keyboard.press("Escape")
    assert page.is_hidden("#filters") and page.evaluate(focus) == "filter"
    page.focus("#open-options")
    page.keyboard.press("Enter")
    page.wait_for_selector("#options", state="visible")
    page.keyboard.press("Escape")
    assert page.is_hidden("#options") and page.evaluate(focus) == "open-options"
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline, wide = page.evaluate(
            "(one => [one.id || one.className || one.tagName, getComputedStyle(one).outlineStyle, one.offsetWidth])"
            "(document.activeElement)"
        )
        seen.add(name)
        # The box shows the focus of its field; a hidden radio button that of its label.
        assert name in ("q", "BODY") or wide < 16 or outline != "none", f"{name} shows no focus"
    assert "open" in seen and "tool select" in seen


def test_page_offers_ideas_that_the_library_answers(opened) -> None:
    page = opened("/", WIDE)
    assert page.locator(".welcome .tries").nth(1).inner_text().startswith("Or look at")
    found = {"hits": [], "fits": True, "index": "x"}

    def notions(route) -> None:
        word = "joy" if "childhood" in route.request.url else "weak"
        hit = {"id": word, "level": "strong" if word == "joy" else "weak", "captions": [], "metadata": {}}
        route.fulfill(json=found | {"hits": [hit]})

    page.route("**/search?*", notions)
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.wait_for_selector(".welcome .tries a")
    page.wait_for_load_state("networkidle")
    assert page.locator(".welcome .tries").first.inner_text().split("\n") == ["Try", "childhood"]


def test_page_takes_a_token_from_the_fragment_once(chromium, tmp_path: Path) -> None:
    index = served_index.made(tmp_path, "library")[0]
    with served_index.running(index, read_token=served_index.READ_TOKEN) as port:
        context = chromium.new_context(base_url=f"http://localhost:{port}")
        page = context.new_page()
        page.set_default_timeout(20_000)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"/?q=a+red+square#token={served_index.READ_TOKEN.replace(' ', '%20')}")
        settled(page)
        assert page.url == f"http://localhost:{port}/?q=a+red+square" and page.is_hidden("#token")
        assert not [url for url in asked if "token" in url]
        page.reload()
        settled(page)
        page.go_back()
        context.close()


def test_page_grid_keeps_panoramas_and_columns_in_bounds(opened) -> None:
    """Rows of any shapes fill the width, and are never much higher than asked."""
    page = opened("/", WIDE)
    rows = page.evaluate(
        """async () => {
          const { rowsOf } = await import('/page/grid.js');
          return [[2.8, 2.8, 0.55], [0.55, 0.55, 0.55], [1.5], [2.8, 0.55, 1, 1, 1.5, 1.5, 1.5, 0.7, 2]].map(
            shapes => [shapes, rowsOf(shapes, 1000, 200, 10)]);
        }"""
    )
    for shapes, lines in rows:
        assert sum(line["count"] for line in lines) == len(shapes)
        at = 0
        for place, line in enumerate(lines):
            own = shapes[at : at + line["count"]]
            at += line["count"]
            wide = sum(own) * line["height"] + 10 * (len(own) - 1)
            assert wide <= 1000.01 and line["height"] <= 290
            assert place == len(lines) - 1 or wide == pytest.approx(1000)


def test_page_levels_come_from_a_ranker_that_has_learnt(tmp_path: Path) -> None:
    """Two hundred texts teach a ranker what a match scores; twelve do not."""
    data = tmp_path / "data"
    data.mkdir()
    words = ["river", "court", "harbour", "lamp", "bridge", "market", "snow", "tower", "garden", "train"]
    lines = []
    for number in range(220):
        Image.new("RGB", (8, 8), (number, 255 - number, number * 7 % 256)).save(data / f"{number}.png")
        parts = [words[number // 10**place % 10] for place in range(3)]
        lines.append(
            {"image": f"{number}.png", "id": f"n{number}", "captions": [f"the {' and the '.join(parts)} at noon"]}
        )
    (data / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    coloured_images.run(data / "data.jsonl", tmp_path / "run")
    index = tmp_path / "index"
    call("index", "build", index, "--run", tmp_path / "run", "--split", "all", "--text-encoder", "none", "--quiet")
    with served_index.client(index) as client:
        hits = client.get("/search?q=the+lamp+and+the+market+and+the+court+at+noon&top=200").json()["hits"]
        levels = [hit["level"] for hit in hits]
        assert levels == sorted(levels, key=("strong", "fair", "weak").index), "they fall with the score"
        assert levels[0] == "strong" and levels[-1] == "weak"
        pixels = client.get("/search?q=the+lamp+at+noon&signals=pixels").json()["hits"]
        similar = client.get("/similar?id=n3").json()["hits"]
        assert {hit["level"] for hit in pixels + similar} == {None}, "a ranker says nothing of other queries"
