"""What requests bring and answers hold, as the OpenAPI description tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

WORDS, TOP, ID, PAGE = 1000, 200, 500, 200
"""Letters of a query; hits of an answer; letters of an id; items of a page."""
SIDE = Literal["images", "texts"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=ID, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""An id: no control characters."""
Words = Annotated[str, StringConstraints(min_length=1, max_length=WORDS, pattern=r"^[^\x00]*$")]
Condition = Annotated[str, StringConstraints(min_length=3, max_length=2000)]
Index = Annotated[str | None, Field(max_length=200, description="Which library; the first where none is named.")]
Where = Annotated[
    list[Condition],
    Field(
        max_length=20,
        description="Conditions on the metadata, all of which have to hold: `year >= 1990`, `place in Paris, Wien`, "
        '`title contains dog`, or {"field": "place", "test": "in", "value": ["Paris", "Wien"]}.',
    ),
]


class Form(BaseModel):
    """What a request may say; anything else in it is refused."""

    model_config = ConfigDict(extra="forbid")


class Wanted(Form):
    """What is looked for, whatever it is looked for by."""

    index: Index = None
    target: SIDE = Field("images", description="What is looked for.")
    top: int = Field(20, ge=1, le=TOP, description="How many at most.")
    where: Where = []


class Asking(Wanted):
    """How an answer is to be."""

    without: Words | None = Field(None, description="Words that it should not go with.")
    like: list[Name] = Field([], max_length=20, description="Items of the library that it should be like as well.")
    unlike: list[Name] = Field([], max_length=20, description="Items of the library that it should not be like.")
    by_words: bool = Field(False, description="Also find texts by the words in them (BM25).")
    hubs: Literal["csls", "softmax"] | None = Field(None, description="Hold back what is near to everything.")
    diversity: float = Field(0, ge=0, le=1, description="More than 0: what is alike goes down.")
    min_probability: float | None = Field(None, ge=0, le=1, description="Leave out what is less likely to match.")
    why: bool = Field(False, description="Give each hit its reasons.")


class ByPicture(Asking):
    """A search by a picture, and by words as well where they are given."""

    q: Words | None = Field(None, description="Words that it should go with, too.")
    image_weight: float = Field(0.5, ge=0, le=1, description="What the picture counts beside the words.")


class ByWords(Asking):
    """A search by words, by items of the library, or by both."""

    q: Words | None = Field(None, description="Words that the picture or text should go with.")
    image_weight: float = Field(0.5, ge=0, le=1, description="What the items of `like` count beside the words.")

    @field_validator("q")
    @classmethod
    def not_blank(cls, text: str | None) -> str | None:
        """Words that are more than spaces."""
        if text is not None and not text.strip():
            raise ValueError("words are needed; there are only spaces")
        return text

    @model_validator(mode="after")
    def something(self) -> ByWords:
        """Something that is asked with."""
        if self.q is None and not self.like:
            raise ValueError("words (q) are needed, or an item to be like (like); there is neither")
        return self


class ByItem(Wanted):
    """A search by an item of the library."""

    id: Name
    side: SIDE = Field("images", description="What the item is.")


class Listed(Wanted):
    """A page of items."""

    top: int = Field(50, ge=1, le=PAGE)
    offset: int = Field(0, ge=0, le=10_000_000)


class Scored(Form):
    """Words, and pictures of the library that they are compared with."""

    index: Index = None
    q: Words
    ids: list[Name] = Field(min_length=1, max_length=100)


class NewItem(Form):
    """A picture with its texts."""

    id: Name
    picture: str = Field(min_length=1, description="The bytes of the picture's file, in base64.")
    captions: list[Words] = Field(min_length=1, max_length=20)
    metadata: dict[str, str | int | float | bool | list[str]] = Field({}, max_length=50)


class Addition(Form):
    """Items that are put in, all or none."""

    index: Index = None
    items: list[NewItem] = Field(min_length=1, max_length=16)


class Deletion(Form):
    """Items that are taken out, all or none."""

    index: Index = None
    target: SIDE = "images"
    ids: list[Name] = Field(min_length=1, max_length=1000)
    keep_texts: bool = Field(False, description="Keep the texts that have no other picture.")


class Refused(BaseModel):
    """Why a request was refused."""

    error: str
    status: int


class Why(BaseModel):
    """A text or picture that says why an item was found: its own one, or the nearest where it has none."""

    id: str
    text: str | None
    score: float
    of: Literal["own", "nearest"]


class Found(BaseModel):
    """One item that was found.

    score     cosine of the vectors that fit best; where several things were asked for together, deviations above
              the mean item
    probability  of being a true match; None where the library is not calibrated for what was asked
    uncertainty  root mean square of the item's deviations, where the model compares distributions: the score is then
              one less half the expected squared distance; else None
    captions  of a picture; of a text, the text itself
    metadata  as the data set has it                   picture   the id by which /thumbnail shows one; None for none
    file      its path inside the collection
    """

    id: str
    score: float | None = None
    probability: float | None = None
    uncertainty: float | None = None
    why: list[Why] = []
    captions: list[str]
    metadata: dict[str, Any]
    picture: str | None = None
    file: str | None = None


class Answered(BaseModel):
    """The answer to a search.

    hits     best first                              unknown_words  that the model does not know
    unit     of the scores      left_out  hits of less than the probability that was asked for
    message  what has to be known before the answer is believed; None where there is nothing
    fits     False where nothing in the library goes with the query; None where that cannot be told
    """

    index: str
    target: SIDE
    hits: list[Found]
    unit: Literal["cosine", "deviations"] = "cosine"
    left_out: int = 0
    unknown_words: list[str] = []
    message: str | None = None
    fits: bool | None = None


class Page(BaseModel):
    """Items in the order in which they came in, and how many fulfil the conditions."""

    index: str
    total: int
    items: list[Found]


class Text(BaseModel):
    """A text of a picture, and how well the model finds that it goes with it."""

    id: str
    text: str | None
    score: float


class Shown(BaseModel):
    """All that is known of one item: its texts (of a text: its pictures), with scores."""

    item: Found
    texts: list[Text]
    pictures: list[Found]


class Facet(BaseModel):
    """A field of the metadata: how it can be filtered by, and what it holds.

    kind      "text", "number" or "date"        count   values that there are, different ones
    values    the commonest, with how many items have them; empty where nearly every item has its own
    low, high the least and the greatest, of numbers and dates
    """

    name: str
    kind: Literal["text", "number", "date"]
    count: int
    values: list[tuple[str | float, int]]
    low: str | float | None = None
    high: str | float | None = None


class Fields(BaseModel):
    """What the items of a library can be filtered by."""

    index: str
    fields: list[Facet]


class Pair(BaseModel):
    """How well words go with a picture: the cosine, and the model's own scale of it."""

    id: str
    score: float
    scaled: float


class Pairs(BaseModel):
    """Scores of words with pictures.

    message  what has to be known before they are believed; None where there is nothing
    """

    index: str
    pairs: list[Pair]
    message: str | None = None


class Changed(BaseModel):
    """What a change did."""

    index: str
    pictures: int
    texts: int
    note: str


class About(BaseModel):
    """A library: what it holds, and who may do what."""

    name: str
    pictures: int
    texts: int
    host: str
    changed: int
    asks_pictures: bool
    asks_words: bool


class Libraries(BaseModel):
    """All libraries of this server, and whether it takes changes."""

    libraries: list[About]
    version: str
    writable: bool


class Health(BaseModel):
    """Whether the server answers, and how far each library has been changed."""

    status: Literal["ok"]
    version: str
    libraries: dict[str, int]
