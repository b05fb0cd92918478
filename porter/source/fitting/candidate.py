"""A variant that a file may be. It is made once, where files are ranked or where a user names the variant,
and is opened from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from porter.filegraph.checkpoint import Checkpoint
from porter.files import is_published
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Graph, Node, head_of
from porter.recipe import Member, NodeNames, expand, expect_head, layer_names
from porter.recipe.twins import Twin, members_with_same_tensors, twins_of
from porter.source.fitting.alignment import Alignment, align
from porter.source.fitting.locating import Located, locate
from porter.source.fitting.names_in_file import Naming, name_layers, parse_map


@dataclass(frozen=True)
class Candidate:
    """A file and a variant that it may be.

    Attributes:
        graph: the variant's, with the zoo's own number of classes.
        mapped: node to the file's layer, as `--map` says.
    """

    member: Member
    checkpoint: Checkpoint
    graph: Graph = field(repr=False)
    mapped: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, member: Member, checkpoint: Checkpoint) -> Candidate:
        """Return a candidate with its graph expanded."""
        return cls(member, checkpoint, expand(member))

    @property
    def dialect(self) -> Dialect:
        return get_dialect(self.member.zoo.framework)

    @cached_property
    def head(self) -> Node:
        return head_of(self.graph)

    @cached_property
    def layers(self) -> NodeNames:
        """The zoo's names of the graph's layers."""
        return layer_names(self.member, self.graph)

    @cached_property
    def naming(self) -> Naming:
        """The file's names of the graph's layers."""
        return name_layers(self.member, self.graph, self.layers, self.checkpoint, self.mapped)

    @cached_property
    def head_kernels(self) -> frozenset[str]:
        """Return the zoo's names of its head's kernel, of today's code and of older code."""
        expect_head(self.member.recipe, self.graph)
        older = (layer_names(self.member, self.graph, label) for label in self.member.zoo.generations)
        names = (
            self.dialect.tensor_names(self.graph, self.head, table[self.head.path].name)
            for table in (self.layers, *older)
        )
        return frozenset(name for roles in names for name in roles["kernel"])

    @cached_property
    def located(self) -> Located:
        """Where the file has the graph's tensors."""
        return locate(self.graph, self.naming.layers, self.member.zoo, self.checkpoint)

    @cached_property
    def publisher(self) -> Member | None:
        """Return the variant in the zoo that publishes exactly this file; None if no zoo does. Only zoos with
        the same names as its own are looked at.

        Every set of weights has its own protocol: torchvision's two zoos differ only in preprocessing and
        published figures.
        """
        for sibling in self.member.kin():
            if sibling.file is None or sibling.zoo.names != self.member.zoo.names:
                continue
            if is_published(sibling.file, self.checkpoint.digests):
                return sibling
        return None

    @cached_property
    def twins(self) -> tuple[Twin, ...]:
        """The same variant in other zoos, where it takes these tensors and computes something else. There are
        none if the file carries a graph, which decides.
        """
        return () if self.checkpoint.graph is not None else twins_of(self.member)

    @cached_property
    def equals(self) -> frozenset[tuple[str, str]]:
        """Return the variant and zoo, its own among them, of every zoo where the variant takes the same
        tensors and computes the same.
        """
        others = (
            variant for variant, differences in members_with_same_tensors(self.member) if not differences
        )
        return frozenset(variant.is_a for variant in (self.member, *others))

    @cached_property
    def alignment(self) -> Alignment:
        """The nodes of the file's graph that can be those of the variant's."""
        assert self.checkpoint.graph is not None
        return align(self.graph, self.checkpoint.graph, self.member.native_size())

    def with_map(self, settings: tuple[str, ...]) -> Candidate:
        """Return the candidate with the settings of `--map`: which layer of the file is which node.

        Raises:
            UsageError: as `parse_map`.
        """
        return replace(self, mapped=parse_map(settings, self.graph)) if settings else self

    def at(self, generation: str | None) -> Candidate:
        """Return the candidate as an older generation of the zoo's code has the variant (Member.at), for
        files with that code's names; itself if nothing differs.
        """
        older = self.member.at(generation)
        return self if older.zoo is self.member.zoo else Candidate.of(older, self.checkpoint)

    def renamed(self, checkpoint: Checkpoint) -> Candidate:
        """Return the candidate with `checkpoint`, which is the same file with other names of its tensors."""
        return self if checkpoint is self.checkpoint else replace(self, checkpoint=checkpoint)


def needs_md5(member: Member) -> bool:
    """Return whether one of the files that `Candidate.publisher` compares with is published with its md5
    only.
    """
    return any("md5" in other.file.published for other in member.kin() if other.file)
