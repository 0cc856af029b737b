"""The page in a browser: search, drop, filter, detail, nothing, errors, narrow screens, what screen readers need."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import served_index
from axe_playwright_python.sync_playwright import Axe
from command import call

pytestmark = browser.needed
EVIL = "<img src=x onerror=\"document.title='broken'\"> & <b>bold</b>"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("page")
    indexes = served_index.made(folder, "library", "other")
    with served_index.client(indexes[0]) as own:
        body = {
            "items": [
                served_index.item(
                    "evil",
                    served_index.picture((9, 9, 9)),
                    EVIL,
                    credit="=1+1",
                    licence="CC BY 4.0",
                    taken="1958-02-03",
                )
            ]
        }
        assert own.post("/add", json=body, headers=served_index.WRITES).status_code == 201
    with served_index.running(*indexes) as port:
        yield f"http://localhost:{port}"


@pytest.fixture
def page(chromium, address: str) -> Iterator[object]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, base_url=address, accept_downloads=True)
    found = context.new_page()
    found.set_default_timeout(20_000)
    wrong: list[str] = []
    outside: list[str] = []
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
    found.on(
        "request", lambda asked: outside.append(asked.url) if not asked.url.startswith((address, "blob:")) else None
    )
    yield found
    context.close()
    assert wrong == [] and outside == []


def test_page_works_behind_a_prefix(chromium, tmp_path: Path) -> None:
    """As at `location /archive/` of nginx: nothing is asked outside of it, and links lead back into it."""
    indexes = served_index.made(tmp_path, "library")
    with served_index.running(*indexes, prefix="/archive") as port:
        home = f"http://localhost:{port}/archive/"
        page = chromium.new_page()
        page.set_default_timeout(20_000)
        failed: list[str] = []
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        page.goto(home)
        page.wait_for_selector(".card img")
        page.fill("#q", "a blue square")
        page.press("#q", "Enter")
        page.wait_for_url(f"{home}?q=a+blue+square")
        page.click(".card .open")
        page.wait_for_selector("dialog[open] img")
        page.reload()
        page.wait_for_selector("dialog[open] img")
        page.keyboard.press("Escape")
        page.click("#home")
        page.wait_for_url(home)
        page.close()
    assert not failed


def accessible(page) -> None:
    found = Axe().run(page).response["violations"]
    assert not found, json.dumps(
        [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found], indent=1
    )


def until(page, script: str) -> None:
    """Wait for something that selectors cannot say; the page's own policy forbids to evaluate it in there."""
    for _ in range(400):
        if page.evaluate(script):
            return
        page.wait_for_timeout(50)
    raise AssertionError(script)


def cards(page) -> list[str]:
    page.wait_for_selector("#columns:not([aria-busy]) .card[data-id]")
    return page.eval_on_selector_all("#columns .card", "all => all.map(one => one.dataset.id)")


def option(page, control: str, value: str) -> None:
    """Choose an option; those stand behind one button."""
    if not page.is_visible("#options"):
        page.click("#open-options")
    page.select_option(control, value)


def test_text_search_has_shareable_address(page) -> None:
    page.goto("/")
    assert len(cards(page)) == 13
    accessible(page)
    page.keyboard.press("/")
    page.keyboard.type("a blue square")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=a+blue+square")
    until(page, "document.querySelector('#status').textContent.includes('13 pictures for “a blue square”')")
    first = cards(page)
    assert page.title() == "a blue square · Subtext"
    assert not re.search(r"\d\.\d|%", page.inner_text("#columns")), "numbers stand in the detail alone"
    accessible(page)
    page.goto("/?q=a+blue+square")
    assert cards(page) == first
    page.check("input[name=for][value=texts]", force=True)
    page.wait_for_selector(".grid.words .card")
    assert "target=texts" in page.url
    accessible(page)
    page.go_back()
    page.wait_for_selector(".grid:not(.words) .card")


def test_keyboard_acts_on_hits_after_search(page) -> None:
    page.goto("/")
    cards(page)
    page.fill("#q", "a blue square")
    page.press("#q", "Enter")
    page.wait_for_url("**/?q=a+blue+square")
    cards(page)
    assert page.evaluate("document.activeElement.id") != "q"
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('.card') !== null")
    page.keyboard.press("?")
    assert page.locator("#help .lines li").count() == 5
    assert page.evaluate("document.querySelector('#help').scrollTop") == 0 and page.is_visible("#help-title")
    accessible(page)


def test_exact_words_are_shown_toggled_and_suggested(page) -> None:
    page.goto("/")
    cards(page)
    page.wait_for_selector("#q:focus")
    page.keyboard.press("/")
    page.keyboard.type("pink")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=pink")
    until(page, "document.querySelectorAll('.card').length === 1")
    assert cards(page) == ["pink"] and "keyword: pink" in page.get_attribute(".card .why", "title")
    assert "words of its caption" in page.text_content(".card .why")
    assert page.get_attribute(".card .said", "title") == "a pink square\nein Quadrat, pink"
    accessible(page)
    option(page, "#signals", "pixels")
    page.wait_for_url("**/?q=pink&signals=pixels")
    until(page, "document.querySelector('#notice').textContent.includes('means nothing')")
    page.goto("/?q=pinkk")
    until(page, "document.querySelector('#notice').textContent.includes('Did you mean pink?')")
    page.click("text=/^pink$/")
    page.wait_for_url("**/?q=pink")
    page.goto('/?q="ein+Quadrat"')
    assert cards(page)[12:] == ["evil"] and not page.text_content("#notice"), "what has the phrase comes first"
    page.goto('/?q="ein+Kreis"')
    until(page, """document.querySelector('#notice').textContent.includes("No text has 'ein Kreis'.")""")


def test_evidence_of_a_search_can_be_chosen(page) -> None:
    def told(words: str) -> list[str]:
        until(page, f"document.querySelector('#status').textContent.includes('{words}')")
        return cards(page)

    page.goto("/?q=a+red+square")
    every = told("for “a red square”")
    option(page, "#signals", "pixels")
    page.wait_for_url("**/?q=a+red+square&signals=pixels")
    by_pixels = told("“a red square”, by pictures alone")
    asked = page.evaluate("fetch('/search?top=40&q=a+red+square&signals=pixels').then(one => one.json())")
    assert [hit["id"] for hit in asked["hits"]] == by_pixels and asked["unit"] == "cosine"
    accessible(page)
    page.reload()
    assert told("by pictures alone") == by_pixels and page.input_value("#signals") == "pixels"
    option(page, "#signals", "texts,words,machine_texts,machine_words,fields")
    by_texts = told("by their texts alone")
    assert sorted(by_texts) == sorted(by_pixels) == sorted(every)
    option(page, "#signals", "")
    page.wait_for_url("**/?q=a+red+square")
    until(page, "!document.querySelector('#status').textContent.includes('alone')")
    assert told("for “a red square”") == every


def test_unsupported_controls_are_hidden(page) -> None:
    page.route(
        "**/libraries*",
        lambda route: route.fulfill(
            json={
                **(told := route.fetch().json()),
                "libraries": [one | {"accepts_images": False, "text_count": 0} for one in told["libraries"]],
            }
        ),
    )
    page.goto("/")
    cards(page)
    assert not page.is_visible("#pick") and "picture" not in page.get_attribute("#q", "placeholder")
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": served_index.picture()})
    assert "takes no pictures" in page.text_content("#notice")


@pytest.mark.parametrize("width", [1366, 390])
def test_page_offers_years_that_do_not_overlap(page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    page.goto('/?where={"field":"taken","test":">%3D","value":"1950-01-01"}')
    assert cards(page) == ["evil"]
    assert page.inner_text("#conditions").startswith("Taken: from 1950-01-01")
    page.click("#filter")
    years = [page.locator(f"input[aria-label='Taken {what} (a year or a date)']") for what in ("from", "to")]
    assert years[1].get_attribute("placeholder") == "1958"
    boxes = [field.bounding_box() for field in years]
    legend = page.locator("#fields fieldset:has(input[aria-label^='Taken to'])").bounding_box()
    for box in boxes:
        assert box["width"] >= 90
        assert legend["x"] <= box["x"] and box["x"] + box["width"] <= legend["x"] + legend["width"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] and boxes[0]["y"] == boxes[1]["y"], "in one row"
    accessible(page)
    years[1].fill("1957")
    page.keyboard.press("Tab")
    page.wait_for_selector("text=Nothing here fits")
    page.keyboard.press("Escape")
    page.click("#conditions button:has-text('Taken: to 1957')")
    until(page, "document.querySelectorAll('#columns .card[data-id]').length === 1")


def test_results_are_ordered_by_a_date(page) -> None:
    page.goto("/?target=images")
    cards(page)
    page.select_option("#order", label="newest first")
    page.wait_for_url("**order=taken&descending=true**")
    assert cards(page)[0] == "evil", "the only one with a date"
    page.reload()
    assert cards(page)[0] == "evil"
    until(page, "document.querySelector('#order').selectedOptions[0]?.label === 'newest first'")


def test_unlisted_filter_value_can_be_typed(page) -> None:
    """Of many different values, the most common are listed."""
    about = {"kind": "text", "values": [["news", 9], ["desk", 2]], "low": None, "high": None}
    fields = [{"name": "keywords", "count": 165, **about}, {"name": "city", "count": 2, **about}]
    page.route("**/fields?*", lambda route: route.fulfill(json={"index": "library", "fields": fields}))
    page.goto('/?where={"field":"keywords","test":"contains","value":"strike"}')
    page.click("#filter")
    typed = page.locator(".filters label:has-text('Keywords, other') input[type=text]")
    typed.wait_for()
    assert typed.input_value() == "strike" and page.locator(".chip:has-text('news')").count() == 2
    assert page.locator(".filters label:has-text('City') input[type=text]").count() == 0
    assert page.inner_text("#conditions").startswith("Keywords: contains “strike”")


def test_html_in_captions_is_escaped(page) -> None:
    page.goto("/?where=id%20%3D%20evil")
    cards(page)
    assert page.text_content(".card .said") == EVIL and page.title() == "Subtext"
    assert page.query_selector(".said img, .said b") is None


def test_picture_can_be_dropped_selected_and_pasted(page, address: str) -> None:
    page.goto("/")
    cards(page)
    page.set_input_files(
        "#file", {"name": "mine.png", "mimeType": "image/png", "buffer": served_index.picture((130, 40, 160))}
    )
    page.wait_for_selector("#asked img")
    until(page, "document.querySelector('#status').textContent.includes('your picture')")
    assert cards(page)[0] == "purple"
    accessible(page)
    drop = """kind => {
      const canvas = document.createElement('canvas'); canvas.width = canvas.height = 40;
      const pen = canvas.getContext('2d'); pen.fillStyle = 'rgb(220,30,30)'; pen.fillRect(0, 0, 40, 40);
      return new Promise(done => canvas.toBlob(data => {
        const moved = new DataTransfer(); moved.items.add(new File([data], 'red.png', {type: 'image/png'}));
        const how = {bubbles: true, cancelable: true};
        const event = kind === 'paste' ? new ClipboardEvent('paste', {clipboardData: moved, ...how})
          : new DragEvent('drop', {dataTransfer: moved, ...how});
        document.dispatchEvent(event); done();
      }, 'image/png'));
    }"""
    for kind in ("drop", "paste"):
        page.click("#home")
        page.wait_for_selector("#asked", state="hidden")
        page.evaluate(drop, kind)
        page.wait_for_selector("#asked img")
        until(page, "document.querySelector('#columns .card')?.dataset.id === 'red'")
    page.set_input_files("#file", {"name": "x.txt", "mimeType": "text/plain", "buffer": b"no picture"})
    assert "no picture" in page.text_content("#notice")


def test_words_and_picture_are_searched_together(page) -> None:
    def told(words: str) -> list[str]:
        until(page, f"document.querySelector('#status').textContent.includes('{words}')")
        return cards(page)

    page.goto("/?q=a+blue+square")
    by_words = told("for “a blue square”")
    mine = {"name": "mine.png", "mimeType": "image/png", "buffer": served_index.picture((130, 40, 160))}
    page.set_input_files("#file", mine)
    both = told("for “a blue square” (50 %) and your picture (50 %)")
    assert page.input_value("#q") == "a blue square"
    assert "leaves it out" in page.inner_text("#private")
    accessible(page)
    page.focus("#words")
    page.keyboard.press("End")
    assert told("“a blue square” (100 %)") == by_words
    assert page.url.endswith("/?q=a+blue+square&text_weight=100") and page.text_content("#weight") == "100 %"
    page.keyboard.press("ArrowLeft")
    told("“a blue square” (95 %) and your picture (5 %)")
    page.keyboard.press("Home")
    assert told("(0 %) and your picture (100 %)")[0] == "purple"
    assert page.evaluate("document.activeElement.id") == "words", "what is moved keeps the focus"
    assert page.get_attribute("#words", "aria-valuetext") == "words 0 %, picture 100 %"
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert told("(50 %) and your picture (50 %)") == both
    page.fill("#q", "a red square")
    page.keyboard.press("Enter")
    told("“a red square” (50 %) and your picture")
    page.go_back()
    assert told("“a blue square” (50 %) and your picture") == both, "the way back has the picture"
    page.click("#pieces button[aria-label='Take away: Your picture']")
    until(page, "document.querySelector('#status').textContent === '13 pictures for “a blue square” in library'")
    assert cards(page) == by_words
    assert page.is_hidden("#asked") and page.evaluate("document.activeElement.id") == "q"


def test_like_and_not_like_items_have_shareable_address(page) -> None:
    page.goto("/?q=a+green+square")
    names = cards(page)
    page.click(f"#columns .card[data-id={names[0]}] .open")
    page.wait_for_selector("#detail[open] .near section:nth-child(2) .card")
    page.click("#detail button:text('Less like this')")
    page.wait_for_selector("#detail", state="hidden")
    until(page, f"document.querySelector('#status').textContent.includes('unlike {names[0]}')")
    assert f"not_like={names[0]}" in page.url and names[0] not in cards(page)
    until(page, "document.querySelector('#pieces img')?.naturalWidth > 0")
    accessible(page)
    page.goto("/?q=a+green+square&like=red&not_like=pink&text_weight=20")
    until(page, "document.querySelector('#status').textContent.includes('(20 %) and red (80 %), unlike pink')")
    shared = cards(page)
    assert page.input_value("#words") == "20" and {"red", "pink"}.isdisjoint(shared)
    page.fill("#q", "")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#status').textContent.includes('for red, unlike pink')")
    assert page.is_hidden("#weigh")
    page.click("#pieces button[aria-label='Take away: Like red']")
    until(page, "document.querySelector('#status').textContent === '13 pictures in library'")
    assert page.url.endswith("/") and page.is_hidden("#asked"), "to be unlike something is no question by itself"


def test_minus_words_exclude_from_results(page) -> None:
    page.goto("/?q=a+green+square")
    cards(page)

    def told(words: str) -> list[str]:
        until(page, f"document.querySelector('#status').textContent.includes({words!r})")
        return cards(page)

    page.fill("#q", 'a green square -red -"a blue square"')
    page.keyboard.press("Enter")
    without = told("for “a green square”, unlike “red”, “a blue square”")
    assert page.input_value("#q") == "a green square" and "not_text=red&not_text=a+blue+square" in page.url
    asked = page.evaluate(
        "fetch('/search?top=40&q=a+green+square&not_text=red%2C+a+blue+square').then(one => one.json())"
    )
    assert [hit["id"] for hit in asked["hits"]] == without and asked["unit"] == "evidence"
    accessible(page)
    page.reload()
    assert told("unlike “red”, “a blue square”") == without
    page.click("#pieces button[aria-label='Take away: Not “red”']")
    told("for “a green square”, unlike “a blue square”")
    page.goto("/?q=red")
    cards(page)
    for plain in ("-red", "blue-green square", "a square -5", "a - b"):
        page.fill("#q", plain)
        page.keyboard.press("Enter")
        told(f"for “{plain}”")
        assert page.is_hidden("#asked")


def test_filters_without_matches_show_message(page) -> None:
    page.goto("/")
    cards(page)
    page.click("#filter")
    page.click(".chip:has-text('test')")
    until(page, "document.querySelectorAll('#columns .card[data-id]').length === 2")
    assert set(cards(page)) == {"pink", "cyan"} and page.text_content("#filtered") == "1"
    accessible(page)
    page.fill("input[aria-label='Place from']", "50")
    page.keyboard.press("Tab")
    page.wait_for_selector("text=Nothing here fits")
    accessible(page)
    page.click("text=Without the filters")
    until(page, "document.querySelectorAll('#columns .card[data-id]').length === 13")
    until(page, "document.querySelector('.chip input:checked') === null")


def test_unknown_words_show_message(page) -> None:
    page.goto("/?q=qqqq")
    page.wait_for_selector("text=Nothing here fits “qqqq”")
    assert "knows no word of the query" in page.text_content("#notice")
    assert page.query_selector("#columns .card[data-id]") is None
    accessible(page)
    page.click("text=Show what is nearest all the same")
    assert len(cards(page)) == 13


def test_detail_shows_neighbours_of_both_modalities(page) -> None:
    page.goto("/?q=a+red+square")
    names = cards(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail[open] .near section:nth-child(2) .card")
    assert f"item={names[0]}" in page.url
    text = page.inner_text("#detail").lower()
    assert "pictures near it" in text and "texts near it" in text and "of all texts" in text
    accessible(page)
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**item={names[1]}**")
    page.wait_for_selector("#detail .primary")
    page.click("#detail .primary")
    page.wait_for_selector("#detail", state="hidden")
    page.wait_for_selector("#asked img")
    assert f"like={names[1]}" in page.url and names[1] not in cards(page)
    page.goto("/?item=nobody")
    page.wait_for_selector("text=It cannot be shown")


def test_selection_and_judgements_are_downloadable(page, tmp_path: Path) -> None:
    page.goto("/?q=a+black+square")
    cards(page)
    page.focus("#columns .card .open")
    page.keyboard.press("s")
    page.click("#columns .card[data-id=evil] .select")
    assert page.text_content("#chosen") == "2 selected"
    accessible(page)
    with page.expect_download() as taken:
        page.click("#csv")
    rows = Path(taken.value.path()).read_text(encoding="utf-8-sig").splitlines()
    assert rows[0].startswith("library,id,file,captions,credit,licence,score,query") and len(rows) == 3
    assert "'=1+1,CC BY 4.0" in "\n".join(rows), "no cell is a formula"
    with page.expect_download() as drawn:
        page.click("#sheet")
    assert Path(drawn.value.path()).read_bytes().startswith(b"\x89PNG")
    page.reload()
    cards(page)
    assert page.text_content("#chosen") == "2 selected", "kept until they are cleared"
    page.click("#clear")
    page.wait_for_selector("#bar", state="hidden")


def test_thumbs_change_the_ranking_at_once(page) -> None:
    page.goto("/?q=a+black+square")
    names = cards(page)
    page.focus("#columns .card .open")
    page.keyboard.press("+")
    until(page, f"document.querySelector('#status').textContent.includes('(70 %) and {names[0]} (30 %)')")
    asked = page.evaluate(
        f"fetch('/search?top=40&q=a+black+square&like={names[0]}&image_weight=0.3').then(one => one.json())"
    )
    assert cards(page) == [hit["id"] for hit in asked["hits"]] and names[0] not in cards(page)
    down = cards(page)[0]
    page.hover("#columns .card")
    page.click("#columns .card .down")
    until(page, "document.querySelector('#status').textContent.includes(', 2 judged, for')")
    assert f"like={names[0]}&not_like={down}" in page.url and {names[0], down}.isdisjoint(cards(page))
    assert page.text_content("#status").startswith("11 pictures"), "what is judged leaves the count"
    accessible(page)
    page.click("#open-options")
    found: list[object] = []
    page.on("download", lambda one: found.append(one))
    page.click("#qrels")
    page.wait_for_timeout(500)
    tables = {one.suggested_filename: Path(one.path()).read_text() for one in found}
    grades = [line.split("\t") for line in tables["qrels.tsv"].splitlines()]
    assert grades[0] == ["query-id", "corpus-id", "score"]
    assert sorted(grades[1:]) == sorted([["q1", names[0], "1"], ["q1", down, "0"]])
    assert json.loads(tables["queries.jsonl"])["text"] == "a black square"
    page.keyboard.press("Escape")
    page.click(f"#pieces button[aria-label='Take away: Unlike {down}']")
    until(page, "document.querySelector('#status').textContent.includes(', 1 judged, for')")
    page.click("#open-options")
    assert page.inner_text("#qrels") == "Download 1 judgement"
    page.click("#forget")
    page.wait_for_selector("#judgements", state="hidden")


def test_page_and_all_hits_are_selected(page) -> None:
    page.goto("/?q=a+black+square")
    cards(page)
    page.click("#all")
    assert page.text_content("#chosen") == "13 selected" and page.locator(".card.taken").count() == 13
    page.click("#clear")
    answer = page.evaluate("fetch('/items?top=40').then(one => one.json())")
    parts = [
        {**answer, "items": answer["items"][:8], "next": "after=7-0123abcd"},
        {**answer, "items": answer["items"][:8], "next": "after=7-0123abcd"},
        {**answer, "items": answer["items"][8:]},
    ]
    asked: list[str] = []

    def pages(route) -> None:
        asked.append(route.request.url)
        route.fulfill(json=parts[len(asked) - 1])

    page.route("**/items?*", pages)
    page.goto("/")
    assert len(cards(page)) == 8
    page.click("#all")
    assert page.text_content("#chosen") == "8 selected"
    page.click("#all-hits")
    until(page, "document.querySelector('#chosen').textContent === '13 selected'")
    assert "after=7-0123abcd" in asked[2]
    page.click("#clear")


def test_downloaded_cells_are_no_formulas_and_keep_fields(page) -> None:
    page.goto("/")
    cards(page)
    script = """async ([captions, metadata]) => {
      sessionStorage.clear();
      const { Selection } = await import('/page/selection.js');
      const selection = new Selection();
      captions.forEach((caption, row) => selection.toggle(
        { id: `i${row}`, file: 'f', captions: [caption], metadata: JSON.parse(metadata[row]) }, 'home', 'q'));
      return [selection.csv(), new Selection().csv()];
    }"""
    formulas = ["=1", "+1x", "-x", "@x", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x"]
    metadata = ['{"__proto__": "kept", "constructor": 7}', *["{}"] * (len(formulas) - 1)]
    for told in page.evaluate(script, [formulas, metadata]):
        head, *rows = csv.reader(io.StringIO(told, newline=""))
        assert head[8:] == ["__proto__", "constructor"] and len(rows) == len(formulas)
        assert [row[3] for row in rows] == [f"'{formula}" for formula in formulas]
        assert [row[8:] for row in rows] == [["kept", "7"], *[["", ""]] * (len(formulas) - 1)]
    script = """async () => {
      localStorage.clear();
      const { Selection } = await import('/page/selection.js');
      for (const value of [1, 0]) new Selection().vote('__proto__', value, 'home', 'q', 'images');
      const found = [new Selection().qrels().qrels.split('\\n')[1], new Selection().judged];
      localStorage.clear();
      return found;
    }"""
    assert page.evaluate(script) == ["q1\t__proto__\t0", 1]


def test_two_libraries_are_compared_side_by_side(page) -> None:
    page.goto("/?q=a+green+square")
    cards(page)
    option(page, "#compare", "other")
    page.wait_for_selector(".columns[data-sides='2'] .column:nth-child(2) .card .beside")
    assert page.inner_text(".column:nth-child(2) h2") == "other" and "compare=other" in page.url
    assert re.fullmatch(r"no\. \d+ in other", page.inner_text(".column:nth-child(1) .card .beside"))
    assert page.query_selector(".card .up") is None, "the other library may lack what is judged"
    accessible(page)


def test_comparison_answers_when_one_library_lacks_item(page) -> None:
    for more in ("", "&q=a+green+square"):
        page.goto(f"/?like=evil&compare=other{more}")
        page.wait_for_selector(".columns[data-sides='2'] .column:nth-child(1) .card .open")
        assert page.locator(".column:nth-child(2) .card").count() == 0
        assert "other: That did not work" in page.inner_text("#notice") and "evil" not in cards(page)
        assert page.inner_text("#status").startswith("12 pictures")
        option(page, "#compare", "")
        page.wait_for_selector("#notice:empty", state="attached")
    page.goto("/?like=nobody&compare=other")
    page.wait_for_selector("[role=alert]")
    assert page.locator("#notice .notice").count() == 1 and page.locator(".card[data-id]").count() == 0


def test_errors_are_shown_and_can_be_retried(page) -> None:
    page.goto("/?q=a+red+square")
    cards(page)
    page.route("**/search?*", lambda route: route.abort())
    page.fill("#q", "a blue square")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    assert "cannot be reached" in page.text_content("#notice")
    accessible(page)
    page.unroute("**/search?*")
    page.click("text=Try again")
    cards(page)
    page.goto("/?q=red&where=nothing+%3D+1")
    page.wait_for_selector("[role=alert]")
    assert "none has 'nothing'" in page.text_content("#notice")


def test_page_fits_narrow_screen_and_dark_mode(chromium, address: str) -> None:
    context = chromium.new_context(viewport={"width": 360, "height": 740}, base_url=address, color_scheme="dark")
    narrow = context.new_page()
    narrow.set_default_timeout(20_000)
    for place in (
        "/",
        "/?q=a+red+square",
        "/?q=a+red+square&compare=other",
        "/?q=a+red+square&like=blue&not_like=pink",
        "/?q=a+red+square&item=red",
    ):
        narrow.goto(place)
        narrow.wait_for_selector("#columns:not([aria-busy]) .card[data-id]")
        wide = narrow.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, f"{place} scrolls sideways: {wide}"
        if "item" in place:
            narrow.wait_for_selector("#detail .near section:nth-child(2)")
        accessible(narrow)
    context.close()


def test_page_requests_token(chromium, tmp_path: Path) -> None:
    index = served_index.made(tmp_path, "library")[0]
    with served_index.running(index, read_token=served_index.READ_TOKEN) as port:
        context = chromium.new_context(base_url=f"http://localhost:{port}")
        own = context.new_page()
        own.set_default_timeout(20_000)
        own.goto("/")
        own.fill("#token-text", served_index.READ_TOKEN)
        own.keyboard.press("Enter")
        assert len(cards(own)) == 12
        until(own, "[...document.querySelectorAll('.mat img')].some(one => one.naturalWidth > 0)")
        context.close()
    call("index", "verify", index)


def test_page_saves_a_list_with_a_token_and_gives_files_without(page) -> None:
    page.goto("/?q=a+black+square")
    names = cards(page)[:2]
    for name in names:
        page.locator(f"#columns .card[data-id={name}] .select").dispatch_event("click")
    page.click("#save")
    page.fill("#list-name", "Winter issue")
    page.check("#list-query")
    page.click("#lists .primary")
    page.wait_for_selector("#lists button:text('As ids')")
    accessible(page)
    with page.expect_download() as taken:
        page.click("#lists button:text('As ids')")
    assert Path(taken.value.path()).read_text().split() == names
    page.fill("#list-token", served_index.TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector(".list-head")
    assert page.inner_text(".list-head h2") == "Winter issue" and re.search(r"#list=\w+$", page.url)
    assert cards(page) == names and page.is_hidden("#bar"), "the selection has become the list"
    accessible(page)
    page.reload()
    assert cards(page) == names
    page.locator(f"#columns .card[data-id={names[0]}] .select").dispatch_event("click")
    page.click("#take-out")
    until(page, "document.querySelectorAll('#columns .card[data-id]').length === 1")
    page.click(".list-head button:text('Search again')")
    page.wait_for_url("**/?q=a+black+square")
    cards(page)
    page.locator(f"#columns .card[data-id={names[0]}] .select").dispatch_event("click")
    page.click("#save")
    page.select_option("#list-into", label="Winter issue")
    page.click("#lists .primary")
    page.wait_for_selector(".list-head")
    assert sorted(cards(page)) == sorted(names), "added to the list that was there"
    page.click("#open-lists")
    page.click("#lists button:text('Rename')")
    page.fill("#lists input[aria-label='New name']", "Spring issue")
    page.keyboard.press("Enter")
    page.wait_for_selector("#lists a:text('Spring issue')")
    accessible(page)
    page.click("#lists button:text('Delete')")
    page.click("#lists button:text('Delete the list')")
    page.wait_for_selector("text=There is none yet")
    assert page.evaluate("fetch('lists').then(one => one.json())")["lists"] == []
