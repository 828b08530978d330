"""Tasks that read texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from muster.common.bounds import Count
from muster.tasks import texts
from muster.tasks.classification import FromFiles
from muster.tasks.models import AnyModel, Softmax
from muster.tasks.partitions import AnyPartition, Natural
from muster.tasks.recurrent import Lstm

if TYPE_CHECKING:
    from muster.tasks.datasets import Dataset


TextLength = Annotated[int, Field(ge=1, le=10_000)]
"""Number of words or characters that a model reads one after the other."""


class News(FromFiles):
    """Predict from which of 20 newsgroups a post is.

    11,314 posts to train and 7,532 later ones to test: Lang, NewsWeeder: Learning to Filter
    Netnews, ICML 1995, "bydate", without the headers. A model that reads tokens gets the first
    words of each post, other models weighted counts of its words.
    """

    files: ClassVar = "20news"
    pictures: ClassVar = False

    model: AnyModel = Softmax(kind="softmax")
    """The model to train."""

    vocabulary: Count = 4000
    """Number of known words: the most common words in the training posts."""

    tokens: TextLength = 150
    """Number of words of a post that a model that reads tokens gets."""

    features: Literal["words", "tokens"] | None = None
    """The input of the model: weighted counts of words, or tokens. Absent: the kind that the model
    reads, and words for a model that is a function."""

    @model_validator(mode="after")
    def _gives_what_is_read(self) -> Self:
        tokens = self._gives_tokens()
        inputs = (self.tokens, self.vocabulary + 1) if tokens else (self.vocabulary,)
        if reason := self.model.refusal(inputs, tokens=tokens):
            raise ValueError(f"model: {reason}")
        return self

    def _gives_tokens(self) -> bool:
        return self.model.tokens if self.features is None else self.features == "tokens"

    def dataset(self) -> Dataset:
        if self._gives_tokens():
            return texts.news_tokens(self.directory(), self.vocabulary, self.tokens)
        return texts.news_words(self.directory(), self.vocabulary)


class Shakespeare(FromFiles):
    """Predict the next character in the speeches of a role in Shakespeare's plays.

    Tiny Shakespeare (Karpathy, char-rnn, 2015), a role per client, as in McMahan et al., AISTATS
    2017, and LEAF (Caldas et al., 2018), whose texts are larger. The last fifth of every role's
    text is for testing.
    """

    files: ClassVar = "shakespeare"
    pictures: ClassVar = False

    model: AnyModel = Lstm(kind="lstm")
    """The model to train."""

    partition: AnyPartition = Natural(kind="natural")
    """The partition of the examples among devices. natural: each device is one of the roles."""

    characters: TextLength = 80
    """Number of characters that the model reads before the one to predict."""

    stride: Count = 10
    """Number of characters from the beginning of one training example to that of the next."""

    test_stride: Count = 50
    """Number of characters from the beginning of one test example to that of the next."""

    minimum: Count = 2000
    """Fewest characters of a role that is a user; 99 roles have at least 2,000."""

    @field_validator("model")
    @classmethod
    def _reads_tokens(cls, model: AnyModel) -> AnyModel:
        if reason := model.refusal((1, 65), tokens=True):
            raise ValueError(reason)
        return model

    def dataset(self) -> Dataset:
        return texts.shakespeare(
            self.directory(), self.characters, self.stride, self.test_stride, self.minimum
        )
