"""The schemas of requests and answers. The parameters of a search come from `subtext.search`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from subtext.api.search import search
from subtext.data.addresses import is_address, joined_path, shown as without_query
from subtext.data.dates import read_date
from subtext.errors import RequirementError
from subtext.retrieval.answer import DateCounts, Level, as_sentence
from subtext.retrieval.condition import parse
from subtext.retrieval.index import Hit, Reason
from subtext.retrieval.lists import MOST_IDS
from subtext.retrieval.stores.facets import ORDER, Condition, Test, Value
from subtext.retrieval.stores.item import Item, Side
from subtext.server.images import SIZES
from subtext.server.refusal import Refusal
from subtext.settings import Field as Setting, fields_of
from subtext.settings.to_pydantic import to_pydantic

MAX_WORDS, MAX_TOP, MAX_ID, MAX_PAGE = 1000, 200, 500, 200
"""Letters of a query; hits of an answer; letters of an id; items of a page."""
MAX_CONDITION, MAX_CONDITIONS, MAX_VALUES = 2000, 20, 200
"""Letters of a condition; conditions of a request; values of a condition."""
MAX_EXAMPLES = 20
RESERVED = frozenset(
    {
        "id", "image", "file_name", "captions", "caption", "text", "text_id", "text_ids", "split", "group", "images",
    }
)  # fmt: skip
"""Names that metadata of new items cannot have: columns of a data set with a meaning of their own."""
OPTIONS: dict[str, Setting] = {
    option.name: option
    for option in fields_of(search)
    if option.group in ("Query", "Results", "Ranking") and option.name not in ("image", "features")
}
"""The settings of `subtext.search` that are parameters of GET and POST /search. The image is the body of POST."""
DEFAULTS = {"top": 20}

Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""An id: no control characters."""
_SIZES = ", ".join(map(str, SIZES))
NO_NULL = r"^[^\x00]*$"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("words are needed; there are only spaces")
    return text


Words = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_WORDS, pattern=NO_NULL),
    AfterValidator(_not_blank),
    Field(json_schema_extra={"pattern": r"^[^\x00]*[^\x00\s][^\x00]*$"}),
]
ConditionText = Annotated[
    str,
    StringConstraints(min_length=3, max_length=MAX_CONDITION, pattern=NO_NULL),
    Field(json_schema_extra={"format": "condition"}),
]
ListTitle = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
    ),
]
"""What a list is called: one line that is not empty."""
FieldName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_ID, pattern=NO_NULL),
    Field(json_schema_extra={"format": "field"}),
]
Scalar = bool | int | float | Annotated[str, StringConstraints(pattern=NO_NULL)]
LibraryName = Annotated[str | None, Field(max_length=200, description="Which library; the first where none is named.")]


FormT = TypeVar("FormT", bound="Form")


class Form(BaseModel):
    """Parameters or body of a request; unknown names are refused.

    Attributes:
        max_json: Commas and opening brackets in a body of JSON.
    """

    model_config = ConfigDict(extra="forbid")
    max_json: ClassVar[int] = 5000


def option_field(option: Setting) -> tuple[Any, Any]:
    """Type and pydantic field of an HTTP parameter: help, default, choices and interval are the setting's.

    Args:
        option: The option of `subtext.search`.

    Returns:
        The type, and the field with its default, help and bounds.
    """
    kind: Any = {"like": Name, "not_like": Name, "where": ConditionText, "order": FieldName}.get(option.name)
    if kind is None and option.type is str and not option.choices:
        kind = Words
    text = option.help.replace("--", "").replace("; repeatable", "")
    if option.name == "where":
        text += ' Or as JSON: {"field": "place", "test": "in", "value": ["Paris", "Wien"]}.'
    return to_pydantic(
        option,
        kind,
        default=DEFAULTS.get(option.name),
        maximum=MAX_TOP if option.name == "top" else None,
        max_length=MAX_CONDITIONS if option.name == "where" else MAX_EXAMPLES if option.multiple else None,
        description=text,
    )


def _form(name: str, doc: str, *options: str, base: type[BaseModel] = Form) -> Any:
    """A form of a library and some of the search options."""
    fields = {option: option_field(OPTIONS[option]) for option in options}
    return create_model(name, __base__=base, __doc__=doc, index=(LibraryName, None), **fields)  # type: ignore[call-overload]


_RERANK = Field(
    False,
    description="Re-rank the results with the second model of this server (serve --rerank RUN); refused without one.",
)


class _TextForm(Form):
    q: Words | None = Field(None, description="Words that the results should match.")
    rerank: bool = _RERANK

    @model_validator(mode="after")
    def has_positive_part(self) -> _TextForm:
        """Something to search for."""
        if self.q is None and not getattr(self, "like", ()):
            raise ValueError("words (q) are needed, or an example item (like); there is neither")
        return self


class _ImageForm(Form):
    q: Words | None = Field(None, description="Words that the results should match, too.")
    rerank: bool = _RERANK


TextSearch = _form("TextSearch", "A search with words, items of the library, or both.", *OPTIONS, base=_TextForm)
ImageSearch = _form("ImageSearch", "A search with an image, and other parts.", *OPTIONS, base=_ImageForm)
_Selection = _form("Selection", "Items of a library.", "target", "top", "where", "dates", "order", "descending")


class Similar(_Selection):  # type: ignore[misc, valid-type]
    """The neighbours of an item of the library."""

    id: Name
    side: Side = Field("images", description="The side of the item.")


class ListQuery(_Selection):  # type: ignore[misc, valid-type]
    """A page of items."""

    top: int = Field(50, ge=1, le=MAX_PAGE)
    after: str | None = Field(
        None,
        pattern=r"^([01]\.-?\d{1,19}\.-?\d{1,19}\.)?\d{1,19}-[0-9a-f]{8}$",
        description="From `next` of the page before.",
    )


class ItemQuery(Form):
    """An item of a library."""

    id: Name
    target: Side = "images"
    index: LibraryName = None


class ThumbnailQuery(Form):
    """The image of an item, and its size."""

    id: Name
    size: int = Field(320, description=f"Pixels of the longer side: {_SIZES}.", json_schema_extra={"enum": [*SIZES]})
    index: LibraryName = None

    @field_validator("size")
    @classmethod
    def is_offered(cls, size: int) -> int:
        """Require one of the sizes that are made.

        Args:
            size: Pixels of the longer side.

        Returns:
            The size.
        """
        if size not in SIZES:
            raise ValueError(f"size is one of {_SIZES}; it got {size}")
        return size


class FieldsQuery(Form):
    """The side whose fields are listed."""

    target: Side = "images"
    index: LibraryName = None


def from_json(form: type[FormT], body: bytes | bytearray) -> FormT:
    """A form from the body of a request.

    Args:
        form: Class of the form.
        body: JSON.

    Returns:
        The form.

    Raises:
        Refusal: 413 for more values than `max_json`.
        RequestValidationError: For what is no such form.
    """
    # The parser stops for nothing, and takes microseconds for each value: those are bounded before.
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > form.max_json:
        sentence = f"a body of JSON may have {form.max_json:,} values; this one has more"
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence)
    try:
        return form.model_validate_json(body)
    except ValidationError as problem:
        raise RequestValidationError(problem.errors(include_url=False, include_input=False)) from problem


class NoParameters(Form):
    """The parameters of a route that has none."""


class ScoreRequest(Form):
    """Words, and images of the library that they are compared with."""

    index: LibraryName = None
    q: Words
    ids: list[Name] = Field(min_length=1, max_length=100)


class NewItem(Form):
    """An image with its texts."""

    id: Name
    image: str = Field(
        min_length=1, description="The bytes of the image's file, in base64.", json_schema_extra={"format": "byte"}
    )
    captions: list[Words] = Field([], max_length=20)
    metadata: dict[str, str | int | float | bool | list[str]] = Field(
        {}, max_length=50, json_schema_extra={"propertyNames": {"not": {"enum": list[JsonValue](sorted(RESERVED))}}}
    )

    @model_validator(mode="after")
    def has_no_reserved_names(self) -> NewItem:
        """No metadata has the name of a column with a meaning of its own.

        Returns:
            The item.
        """
        reserved = sorted(set(self.metadata) & RESERVED)
        if reserved:
            raise ValueError(f"metadata cannot be called '{reserved[0]}'; rename it")
        return self


class AddRequest(Form):
    """Items to add, all or none."""

    max_json = 20_000
    index: LibraryName = None
    items: list[NewItem] = Field(min_length=1, max_length=16)


class DeleteRequest(Form):
    """Items to delete, all or none."""

    index: LibraryName = None
    target: Side = "images"
    ids: list[Name] = Field(min_length=1, max_length=1000)
    keep_texts: bool = Field(False, description="Keep the texts that have no other image.")


Ids = Annotated[list[Name], Field(max_length=MOST_IDS)]


class JudgedIds(Form):
    """Images that were judged for the query of a list."""

    like: Ids = []
    not_like: Ids = []


class ListsQuery(Form):
    """The library whose lists are asked for."""

    index: LibraryName = None


class NewList(Form):
    """A list of images to save."""

    max_json = 20_000
    index: LibraryName = None
    name: ListTitle
    ids: Ids
    query: Words | None = Field(None, description="The query that found them.")
    judged: JudgedIds = JudgedIds()


class ListChange(Form):
    """What changes in a saved list; what is left out stays."""

    max_json = 20_000
    index: LibraryName = None
    name: ListTitle | None = None
    ids: Ids | None = None
    query: Words | None = None
    judged: JudgedIds | None = None


class ErrorResponse(BaseModel):
    """Why a request was refused."""

    error: str
    status: int


class ItemOut(BaseModel):
    """One item, as a hit or by itself.

    Attributes:
        score: In the unit of the answer.
        why: The reasons as one line; "" for none.
        level: How well a hit matches, by the ranker of the library; None where it has not learnt what a match scores.
        probability: Of being a true match; None where the library is not calibrated for the query.
        uncertainty: Root mean square of the item's deviations, where the model compares distributions: the score is
            then one less half the expected squared distance; else None.
        captions: Of an image; of a text, the text itself.
        metadata: As the data set has it.
        image_id: The id for /thumbnail; None for none.
        file: Its path inside the collection; of a file elsewhere its name alone.
    """

    id: str
    score: float | None = None
    probability: float | None = None
    uncertainty: float | None = None
    reasons: list[Reason] = []
    why: str = ""
    level: Level | None = None
    captions: list[str]
    metadata: dict[str, Any]
    image_id: str | None = None
    file: str | None = None

    @staticmethod
    def of(item: Hit | Item, side: Side, root: str) -> ItemOut:
        """A hit, or an item of the store, without the folder of its file; `root` is the collection's folder.

        Args:
            item: A hit, or an item of the store.
            side: "images" or "texts".
            root: Folder of the collection.

        Returns:
            The item, without the folder of its file.
        """
        path = None if item.path is None else joined_path(Path(root), item.path)
        image = None if path is None else item.id
        if side == "texts":
            image = next(iter(item.metadata.get("images", [])), None)
        shown = ItemOut(id=item.id, captions=item.captions, metadata=item.metadata, image_id=image)
        if is_address(path):
            shown.file = without_query(str(item.path))
        elif path is not None:
            # As it is written, "photos/../../secret.jpg" lies in the collection.
            place = Path(os.path.normpath(path))
            inside = place.is_relative_to(os.path.normpath(root))
            shown.file = place.relative_to(os.path.normpath(root)).as_posix() if inside else place.name
        if isinstance(item, Hit):
            shown.score, shown.probability, shown.uncertainty = item.score, item.probability, item.uncertainty
            shown.reasons, shown.why, shown.level = item.reasons, as_sentence(item.reasons), item.level
        return shown


class Results(BaseModel):
    """The answer to a search.

    Attributes:
        hits: Best first.
        unit: Of the scores.
        left_out: Hits below the minimum probability.
        approximate: Whether better items may have been missed.
        dates: For conditions on dates, how many items meet them possibly and certainly, and how many have no date.
        unknown_words: That the model does not know.
        exact_words: Phrases of the query, and words that the model does not know, that items of the library have.
        did_you_mean: Words that no text has -> the nearest that some have.
        message: What to know before trusting the hits; None where there is nothing.
        fits: False where nothing in the library matches the query; None where that is unknown.
    """

    index: str
    target: Side
    hits: list[ItemOut]
    unit: Literal["evidence", "cosine", "deviations", "score"] = "cosine"
    left_out: int = 0
    approximate: bool = False
    dates: DateCounts | None = None
    unknown_words: list[str] = []
    exact_words: list[str] = []
    did_you_mean: dict[str, str] = {}
    message: str | None = None
    fits: bool | None = None


class ItemPage(BaseModel):
    """Items in the order in which they were added, or of their dates, and how many meet the conditions.

    Attributes:
        index: The library.
        total: Items that meet the conditions now.
        items: This page.
        dates: For conditions on dates, how many items meet them possibly and certainly, and how many have no date.
        next: What the same request gets in addition for the next page, as in `after=17-0123abcd`; None on the last one.
            Items that are added or deleted meanwhile move no other item from one page to another.
    """

    index: str
    total: int
    dates: DateCounts | None = None
    items: list[ItemOut]
    next: str | None = None


class TextOut(BaseModel):
    """A text of an image, and its score with the image."""

    id: str
    text: str | None
    score: float


class ItemDetail(BaseModel):
    """An item with its texts (of a text: its images), and their scores."""

    item: ItemOut
    texts: list[TextOut]
    images: list[ItemOut]


class Facet(BaseModel):
    """A field of the metadata to filter by.

    Attributes:
        kind: "text", "number" or "date".
        count: Different values.
        values: The most common, with the number of items; empty where nearly every item has its own.
        low: Of numbers and dates; None where the first date has no beginning.
        high: See `low`.
    """

    name: str
    kind: Literal["text", "number", "date"]
    count: int
    values: list[tuple[str | float, int]]
    low: str | float | None = None
    high: str | float | None = None


class Fields(BaseModel):
    """The fields that a library can be filtered by."""

    index: str
    fields: list[Facet]


class PairScore(BaseModel):
    """The score of words with an image: the cosine, and the model's own scale of it."""

    id: str
    score: float
    scaled: float


class ScoreResponse(BaseModel):
    """Scores of words with images.

    Attributes:
        message: What to know before trusting them; None where there is nothing.
    """

    index: str
    pairs: list[PairScore]
    message: str | None = None


class ChangeResult(BaseModel):
    """The result of a change."""

    index: str
    image_count: int
    text_count: int
    note: str


class ListSummary(BaseModel):
    """A saved list.

    Attributes:
        name: What people call it.
        link: What it is asked for by.
        items: Number of its images.
        query: The query that found them; None for none.
        created: When, in UTC.
    """

    name: str
    link: str
    items: int
    query: str | None
    created: str


class SavedLists(BaseModel):
    """The saved lists of a library, the newest first."""

    index: str
    lists: list[ListSummary]


class ListOut(BaseModel):
    """A saved list with its images.

    Attributes:
        name: What people call it.
        link: What it is asked for by.
        ids: Of its images, in their order.
        query: The query that found them; None for none.
        created: When, in UTC.
        judged: "like" and "not_like" -> ids of images that were judged so for the query.
        items: Its images.
    """

    index: str
    name: str
    link: str
    ids: list[str]
    query: str | None
    created: str
    judged: dict[str, list[str]]
    items: list[ItemOut]


class LibraryInfo(BaseModel):
    """A library: its size, its model, and what it can be searched with."""

    name: str
    image_count: int
    text_count: int
    model: str
    generation: int
    accepts_images: bool
    accepts_text: bool


class Libraries(BaseModel):
    """All libraries of this server, and whether it takes changes."""

    libraries: list[LibraryInfo]
    version: str
    writable: bool


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]
    version: str


class Ready(BaseModel):
    """The libraries can be searched, and how many there are."""

    status: Literal["ready"]
    libraries: int


class _JsonCondition(Form):
    """A condition as JSON."""

    field: Annotated[str, StringConstraints(pattern=NO_NULL)]
    test: Test
    value: Scalar | Annotated[list[Scalar], Field(min_length=1)]


def parse_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Conditions as typed, `year >= 1990`, or {"field": "place", "test": "in", "value": ["Paris", "Wien"]}.

    In JSON a text that is a date of any notation compares with dates; several values are for "in" and "!=".

    Args:
        texts: Conditions, as typed or as JSON.

    Returns:
        As many conditions, in their order.

    Raises:
        RequirementError: For anything else, and for too many values.

    Example:
        >>> parse_conditions(['{"field": "year", "test": ">=", "value": 1990}']) == parse_conditions(["year >= 1990"])
        True
    """
    return tuple(_condition(text) for text in texts)


def _condition(text: str) -> Condition:
    try:
        condition = _json_condition(text) if text.lstrip().startswith("{") else parse(text)
    except ValidationError as problem:
        raise RequirementError(
            'a condition in JSON needs {"field": ..., "test": ..., "value": ...} and nothing else, with a test of '
            f"{', '.join(get_args(Test))}, and a text, a number or a list of them as value"
        ) from problem
    except (ValueError, OverflowError) as problem:
        if isinstance(problem, RequirementError):
            raise
        raise RequirementError(f"a condition needs a value that can be compared; {problem}") from problem
    values = condition.value if isinstance(condition.value, list | tuple) else [condition.value]
    if len(values) > MAX_VALUES:
        raise RequirementError(f"a condition may have {MAX_VALUES} values; it got {len(values)}")
    return condition


def _json_condition(text: str) -> Condition:
    """The condition; a text that is a date, compared by order, becomes the date."""
    form = _JsonCondition.model_validate_json(text)
    written = form.value if isinstance(form.value, list) else [form.value]
    values: list[Value] = []
    for value in written:
        date = read_date(value) if isinstance(value, str) and form.test != "contains" else None
        plain = int(value) if isinstance(value, bool) else value
        values += [plain] if date is None else [date] if form.test in ORDER else [date, plain]
    if form.test == "=" and len(values) > 1 and not isinstance(form.value, list):
        return Condition(form.field, "in", values)
    several = isinstance(form.value, list) or len(values) > 1
    return Condition(form.field, form.test, values if several else values[0])
