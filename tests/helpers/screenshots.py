"""Screenshots of the pages, to look at: `python tests/helpers/screenshots.py FOLDER` (make pictures).

The archives are made for it, of real photographs where SUBTEXT_DATA has them. Each view is shot at 1,366 and 390
pixels, light and dark. The model is the starter (extras `serve`, `starter` and `test`), the browser Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import browser
import photographs
import served_index
from playwright.sync_api import sync_playwright

SCREENS = {1366: 768, 390: 844}
"""Width and height of a screen, in pixels."""
QUERY = photographs.QUERY


def subtext(*words: object) -> None:
    """Run a command; what it prints is shown only where it fails."""
    done = subprocess.run([sys.executable, "-m", "subtext", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"subtext {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


def select(page: Any) -> None:
    """Select the first three hits."""
    for place in range(3):
        page.locator("#columns .card .select").nth(place).dispatch_event("click")


def judge(page: Any) -> None:
    """One more like the second hit, none like the third."""
    page.locator("#columns .card .up").nth(1).dispatch_event("click")
    page.wait_for_selector("#pieces .piece")
    settled(page)
    page.locator("#columns .card .down").nth(2).dispatch_event("click")
    page.wait_for_selector("#pieces .far")


def save(page: Any) -> None:
    """The dialog that saves a selection."""
    select(page)
    page.click("#save")
    page.wait_for_selector("#lists h2")


def density(name: str) -> Callable[[Any], None]:
    """Another density of the grid."""
    return lambda page: page.locator(f"input[name=density][value={name}]").evaluate(
        "box => { box.checked = true; box.dispatchEvent(new Event('change')); }"
    )


VIEWS: dict[str, tuple[str, Callable[[Any], None] | None]] = {
    "start": ("/", None),
    "results": (f"/?q={QUERY}", None),
    "pictures": (f"/?q={QUERY}", density("pictures")),
    "details": (f"/?q={QUERY}", density("details")),
    "texts": (f"/?q={QUERY}&target=texts", None),
    "detail": (f"/?q={QUERY}", lambda page: page.click("#columns .card .open")),
    "filters": (
        '/?where={"field":"place","test":"in","value":["Genève","Havana"]}',
        lambda page: page.click("#filter"),
    ),
    "options": (f"/?q={QUERY}", lambda page: page.click("#open-options")),
    "selection": (f"/?q={QUERY}", select),
    "save": (f"/?q={QUERY}", save),
    "judged": (f"/?q={QUERY}", judge),
    "compare": (f"/?q={QUERY}&compare=scans", None),
    "no-picture": ("/?index=scans", None),
    "no-hit": (f"/?q={photographs.NOTHING}", None),
    "help": (f"/?q={QUERY}", lambda page: page.keyboard.press("?")),
}
"""View -> its address, and what is done there."""


def settled(page: Any) -> None:
    """Wait for all pictures."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


def main() -> None:
    """Make the archives, and shoot."""
    folder = Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "archives"
    # Two hundred images with texts teach the ranker of an index what a match scores.
    data = photographs.archive(work / "desk", 280)
    scans = photographs.archive(work / "bare", 24)
    model = ("--model", "starter", "--split", "all", "--quiet")
    subtext("index", "build", work / "library", "--data", data, *model)
    subtext("index", "build", work / "scans", "--data", scans, *model)
    # Files go after an index was built: a disk is not mounted, a folder was renamed.
    for path in sorted((work / "bare").rglob("*.jpg"))[::3]:
        path.unlink()
    subtext("curate", data, *model[:2], "--out", work / "curated", "--quiet")
    subtext("data", "dedup", data, "--page", work / "copies.html")
    files = {"curate": work / "curated" / "index.html", "duplicates": work / "copies.html"}
    with ExitStack() as opened:
        port = opened.enter_context(served_index.running(work / "library", work / "scans"))
        chromium = opened.enter_context(sync_playwright()).chromium
        found = chromium.launch(executable_path=browser.CHROMIUM, args=["--no-sandbox"])
        for width, height in SCREENS.items():
            for scheme in ("light", "dark"):
                phone = width < 500
                context = found.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=phone, is_mobile=phone
                )
                page = context.new_page()
                views = {name: (f"http://localhost:{port}{address}", act) for name, (address, act) in VIEWS.items()}
                for name, (address, act) in {**views, **{k: (f.as_uri(), None) for k, f in files.items()}}.items():
                    page.goto(address)
                    settled(page)
                    if act is not None:
                        act(page)
                        settled(page)
                    page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
                    if address.startswith("http"):
                        page.evaluate("sessionStorage.clear(); localStorage.clear()")
                context.close()
        found.close()
    print(f"{(len(VIEWS) + len(files)) * 2 * len(SCREENS)} screenshots in {folder}")


if __name__ == "__main__":
    main()
