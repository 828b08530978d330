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
"""Words or characters that a model reads one after the other."""


class News(FromFiles):
    """Which of 20 newsgroups a post is from, 11,314 to train and 7,532 later ones to test.

    Lang, NewsWeeder: Learning to Filter Netnews, ICML 1995, "bydate", without the headers. A model
    that reads tokens is given the first words of each post, others weighted counts of its words.
    """

    files: ClassVar = "20news"

    model: AnyModel = Softmax(kind="softmax")
    """What is trained."""

    vocabulary: Count = 4000
    """Words that are known: the commonest in the training posts."""

    tokens: TextLength = 150
    """Words of a post that a model of tokens reads."""

    features: Literal["words", "tokens"] | None = None
    """What the model is given; absent: what it reads, and words for a model that is a function."""

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
    """The next character of what a role in Shakespeare's plays says.

    Tiny Shakespeare (Karpathy, char-rnn, 2015), a role to a client, as in McMahan et al., AISTATS
    2017, and LEAF (Caldas et al., 2018), whose texts are larger. The last fifth of every role's
    text is for testing.
    """

    files: ClassVar = "shakespeare"

    model: AnyModel = Lstm(kind="lstm")
    """What is trained."""

    partition: AnyPartition = Natural(kind="natural")
    """Which device holds which examples; natural: each is one of the roles."""

    characters: TextLength = 80
    """Characters that the model reads before the one it is asked for."""

    stride: Count = 10
    """Characters between two examples."""

    test_stride: Count = 50
    """Characters between two test examples."""

    minimum: Count = 2000
    """Characters of a role that is a user; 99 roles have 2,000."""

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
