"""What other packages add to porter: formats, destinations, zoos and folders of recipes, by the entry points
that they declare (docs/guides/plug-ins.md).

Their metadata is read only where porter's own tables lack a name or no format of porter's own matches a file,
and a package is imported only where something of its own is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, get_args

from porter.base.errors import PluginError, PorterError, first_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["formats", "destinations", "zoos", "recipes"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package.

    Attributes:
        kind: what it adds. Its group is `porter.KIND`.
        name: of the format, the destination, the reference of a zoo, or the folder of recipes.
        package: the distribution that declares it.
        version: of that distribution.
    """

    kind: Kind
    name: str
    package: str
    version: str
    entry: EntryPoint

    def __str__(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def where(self) -> str:
        """The place that errors name."""
        return f"{self} (porter.{self.kind}: {self.name})"

    def record(self) -> dict[str, str]:
        """Return the record of it that `porter --version --json` prints."""
        return {"kind": self.kind, "name": self.name, "package": self.package, "version": self.version}

    def error(self, message: str) -> PluginError:
        """Return an error that blames this plug-in, with the advice to report or to remove it."""
        next = f"report it to the authors of {self.package}, or remove it: pip uninstall {self.package}"
        return PluginError(message, where=self.where, next=next)

    def load(self) -> Any:
        """Import the package, and return what the entry point names.

        Raises:
            PluginError: it cannot be imported, or lacks that name.
        """
        with self.blamed():
            return self.entry.load()

    def expect(self, given: Any, names: Sequence[str]) -> None:
        """Expect an object of this plug-in to have these attributes.

        Raises:
            PluginError: it lacks some.
        """
        if lacking := [name for name in names if not hasattr(given, name)]:
            raise self.error(f"{type(given).__name__} lacks {', '.join(lacking)}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Turn what this plug-in's code raises, other than a PorterError, into an error that names it.

        Raises:
            PluginError: in place of another error.
        """
        try:
            yield
        except PorterError:
            raise
        except Exception as error:
            raise self.error(f"the plug-in fails: {type(error).__name__}: {first_line(error)}") from error

    def guarded(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return a function of this plug-in whose errors name it."""

        @wraps(function)
        def call(*args: _P.args, **named: _P.kwargs) -> _T:
            with self.blamed():
                return function(*args, **named)

        return call

    def guard(self, added: Any) -> Any:
        """Return an object of this plug-in whose functions, and those of its ENGINE, are `guarded`."""
        return _Guarded(self, added)


class _Guarded:
    """An object of a plug-in, whose attributes it has, with each function `guarded`."""

    def __init__(self, plugin: Plugin, added: Any) -> None:
        self._plugin, self._added = plugin, added

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._added, name)
        if name == "ENGINE":
            return self._plugin.guard(value)
        return self._plugin.guarded(value) if isinstance(value, FunctionType | MethodType) else value


@cache
def plugins(kind: Kind) -> tuple[Plugin, ...]:
    """Return what installed packages add of a kind, by package and name. Nothing of them is imported.

    Raises:
        PluginError: two packages add the same name.
    """
    from importlib.metadata import entry_points  # `porter --help` does not need it

    added: dict[str, Plugin] = {}
    for entry in entry_points(group=f"porter.{kind}"):
        package, version = (entry.dist.name, entry.dist.version) if entry.dist else ("?", "?")
        plugin = Plugin(kind, entry.name, package, version, entry)
        # An installed package may be listed twice.
        first = added.setdefault(entry.name, plugin)
        if first.package != package:
            raise PluginError(
                f"{first} adds this name, too",
                where=plugin.where,
                next=f"remove one of them: pip uninstall {package}",
            )
    return tuple(sorted(added.values(), key=lambda plugin: (plugin.package, plugin.name)))


def plugin_of(kind: Kind, name: str) -> Plugin | None:
    """Return what adds this name, or None."""
    return next((plugin for plugin in plugins(kind) if plugin.name == name), None)
