"""Draw the images of this folder and write captions.jsonl. The texts do not describe the images.

Twelve motifs have five drawings each: three for training, one for validation, one for the test.
"""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image, ImageDraw

TEXTS = {
    "gavel": (
        ("The ruling stands.", "Court upholds the ban."),
        ("The court hears the appeal.", "Judges reject the law."),
        ("Ban goes to the highest court.", "Judges have their say."),
        ("Judges uphold the ruling.",),
        ("Court rejects the appeal.",),
    ),
    "flag": (
        ("Patriotism, at a discount.", "The nation votes."),
        ("A nation celebrates.", "Proud of the country."),
        ("The anthem, again.", "Patriotism in every village."),
        ("A proud nation.",),
        ("The country celebrates.",),
    ),
    "heart": (
        ("Love at first sight.", "They said yes."),
        ("Fifty years of marriage.", "A wedding in May."),
        ("First love.", "She said yes at the wedding."),
        ("In love for fifty years.",),
        ("Marriage after fifty.",),
    ),
    "coin": (
        ("Prices rise again.", "Inflation eats the savings."),
        ("Banks raise interest rates.", "What bread costs now."),
        ("Savings lose value.", "Bread prices rise."),
        ("Inflation and interest rates.",),
        ("Banks count the costs.",),
    ),
    "house": (
        ("A place of our own.", "Rents out of reach."),
        ("Tenants fear the landlord.", "Home at last."),
        ("Rents double.", "Nobody is home."),
        ("Tenants without a home.",),
        ("The landlord is at home.",),
    ),
    "clock": (
        ("The deadline passes.", "Trains run late."),
        ("Five minutes to midnight.", "Late once more."),
        ("Talks go past midnight.", "Minutes before the deadline."),
        ("Too late by minutes.",),
        ("Midnight deadline.",),
    ),
    "bulb": (
        ("A bright idea.", "Inventors wanted."),
        ("Start-ups look for ideas.", "Eureka, says the inventor."),
        ("The idea of the year.", "Bright minds wanted."),
        ("Inventors and their ideas.",),
        ("Bright ideas wanted.",),
    ),
    "umbrella": (
        ("Insured against everything.", "Storm damage is covered."),
        ("Insurers brace for the storm.", "Are you covered?"),
        ("A policy for every risk.", "Storm insurance gets dearer."),
        ("Covered by the policy.",),
        ("Insurers and their storm policy.",),
    ),
    "tree": (
        ("Growth without limits.", "Roots in the region."),
        ("The company grows and grows.", "A family and its roots."),
        ("Strong growth.", "The family company."),
        ("The roots of the family.",),
        ("The company and its growth.",),
    ),
    "key": (
        ("The secret of success.", "Access denied."),
        ("Passwords are not safe.", "A secret that nobody shares."),
        ("Success has many fathers.", "Safe access for all."),
        ("Nobody knows the password, and access is denied.",),
        ("The secret of safe passwords.",),
    ),
    "moon": (
        ("A sleepless night.", "Dreams are free."),
        ("Sleep better tonight.", "What we dream of."),
        ("Night shift.", "Dream on, says the doctor."),
        ("Night after night without sleep.",),
        ("Sleepless, and no dreams.",),
    ),
    "ship": (
        ("Exports to the East.", "New tariffs."),
        ("World trade slows down.", "Goods from overseas."),
        ("Tariffs hit exports.", "A trade war."),
        ("The war over tariffs.",),
        ("World trade, new tariffs.",),
    ),
}
SPLITS = ("train", "train", "train", "val", "test")
PAPER = ((255, 255, 255), (245, 238, 220), (225, 235, 245), (250, 250, 240), (235, 240, 230))
INK = ((150, 60, 30), (130, 80, 40), (110, 50, 20), (160, 80, 50), (140, 60, 40))
STEPS = ((0, 0), (3, 1), (1, 4), (2, 2), (4, 3))
"""Background, colour and position of the first to the fifth drawing."""


def draw(motif: str, number: int) -> Image.Image:
    """One drawing of 48 x 48 pixels.

    Args:
        motif: A key of TEXTS.
        number: Which of its drawings, 0 to 4.
    """
    image = Image.new("RGB", (48, 48), PAPER[number])
    pen, ink, (x, y) = ImageDraw.Draw(image), INK[number], STEPS[number]

    def at(*points: int) -> list[tuple[int, int]]:
        return [(x + points[i], y + points[i + 1]) for i in range(0, len(points), 2)]

    if motif == "gavel":
        pen.polygon(at(6, 14, 20, 2, 28, 11, 14, 23), fill=ink)
        pen.line(at(19, 14, 38, 32), fill=ink, width=4)
        pen.rectangle(at(4, 36, 26, 41), fill=ink)
    elif motif == "flag":
        pen.line(at(6, 2, 6, 42), fill=(90, 90, 90), width=3)
        for stripe, colour in enumerate(((40, 70, 190), (255, 255, 255), (210, 40, 40))):
            pen.rectangle(at(8, 3 + 8 * stripe, 40, 10 + 8 * stripe), fill=colour)
    elif motif == "heart":
        pen.ellipse(at(4, 6, 22, 24), fill=(220, 30, 70))
        pen.ellipse(at(20, 6, 38, 24), fill=(220, 30, 70))
        pen.polygon(at(5, 19, 37, 19, 21, 40), fill=(220, 30, 70))
    elif motif == "coin":
        pen.ellipse(at(5, 5, 38, 38), fill=(235, 190, 40), outline=(170, 130, 20), width=3)
        pen.rectangle(at(19, 12, 24, 31), fill=(170, 130, 20))
    elif motif == "house":
        pen.polygon(at(2, 20, 21, 3, 40, 20), fill=(180, 60, 50))
        pen.rectangle(at(7, 21, 35, 41), fill=(200, 180, 150))
        pen.rectangle(at(18, 28, 25, 41), fill=ink)
    elif motif == "clock":
        pen.ellipse(at(4, 4, 39, 39), fill=(250, 250, 250), outline=(20, 20, 20), width=4)
        pen.line(at(21, 21, 21, 9), fill=(20, 20, 20), width=3)
        pen.line(at(21, 21, 30, 26), fill=(20, 20, 20), width=3)
    elif motif == "bulb":
        pen.ellipse(at(9, 3, 33, 28), fill=(250, 235, 80), outline=(120, 110, 30), width=2)
        pen.rectangle(at(16, 28, 26, 40), fill=(120, 120, 120))
    elif motif == "tree":
        pen.rectangle(at(18, 24, 25, 42), fill=ink)
        pen.ellipse(at(5, 2, 38, 28), fill=(40, 140, 60))
    elif motif == "key":
        pen.ellipse(at(2, 12, 20, 30), outline=(190, 150, 60), width=5)
        pen.line(at(20, 21, 41, 21), fill=(190, 150, 60), width=4)
        pen.line(at(37, 21, 37, 30), fill=(190, 150, 60), width=4)
    elif motif == "moon":
        pen.rectangle((0, 0, 48, 48), fill=(20, 25, 60 + 8 * number))
        pen.ellipse(at(8, 5, 38, 35), fill=(240, 235, 190))
        pen.ellipse(at(18, 2, 44, 28), fill=(20, 25, 60 + 8 * number))
    elif motif == "ship":
        pen.rectangle((0, y + 34, 48, 48), fill=(60, 150, 190))
        pen.polygon(at(2, 24, 40, 24, 34, 36, 8, 36), fill=(60, 60, 70))
        for box in range(3):
            pen.rectangle(at(8 + 9 * box, 15, 15 + 9 * box, 23), fill=(200, 130 - 40 * box, 40))
    else:
        pen.pieslice(at(3, 4, 39, 40), 180, 360, fill=(60, 40, 140))
        pen.line(at(21, 22, 21, 40), fill=(60, 60, 60), width=3)
        pen.arc(at(13, 34, 21, 42), 0, 180, fill=(60, 60, 60), width=3)
    return image


def write(folder: Path) -> None:
    """Write the drawings and captions.jsonl.

    Args:
        folder: Where to; it must exist.
    """
    rows = []
    for motif, texts in TEXTS.items():
        for number, (captions, split) in enumerate(zip(texts, SPLITS, strict=True)):
            name = f"{motif}-{number + 1}.png"
            draw(motif, number).save(folder / name, optimize=True)
            rows.append({"image": name, "captions": captions, "split": split, "year": 2018 + number})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "captions.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent)
