"""Runs a file's own graph in numpy. See porter.frameworks.Engine.

It is independent of how porter reads the file: the rows of the file's format (`Format.rows`) take operators
and attributes as the file says them, and porter.filegraph.kernels computes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, Numbers, is_floating
from porter.base.errors import CannotRun, Contradiction, UsageError, first_line
from porter.base.options import DTYPE, PRECISION, SOURCE
from porter.base.ways_to_run import FP32, Run
from porter.data.preprocess import Preprocess
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.kernels.layouts import with_channels_first, with_channels_last
from porter.filegraph.program import KernelProgram, OperatorCall
from porter.formats.recognition import known_format
from porter.frameworks import UNCUT, Classifier
from porter.frameworks.batches import further_arrays, make_cpu_classifier
from porter.frameworks.defaults import disagreement as disagreement
from porter.frameworks.last_uses import last_uses
from porter.graph import TakesInputs
from porter.padding import Size

NAME = "numpy"
RUNNER = "porter's interpreter"
_NUMBER_TYPES = ("float32", "float64")


@dataclass(frozen=True)
class NumpyModel:
    """A program, the operators of a file in order, with the file's tensors, in the file's axis order.

    Attributes:
        takes: what it takes, where that is more than images; the names of its further inputs are the
            program's.
        arrays: names of values that are no maps, whatever axes they have.
    """

    program: KernelProgram
    tensors: NamedArrays
    dtype: Dtype
    takes: TakesInputs | None = None
    arrays: Collection[str] = ()

    def __call__(self, batch: Array, names: tuple[str, ...], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Run the program on a batch N×C×H×W and return the values called `names`, those of them that it has;
        maps are N×C×H×W.

        Args:
            cut: by name, an array that is read in place of a value that has the name alone.

        Raises:
            CannotRun: porter has no row for an operator that they need.
            Contradiction: a row does not take the inputs of an operator that porter reads.
        """
        # The program takes one image at a time: its cut values are divided likewise.
        if self.program.single and len(batch) > 1:
            values_of_images = []
            for index in range(len(batch)):
                image = slice(index, index + 1)
                cut_of_image = {name: value[image] for name, value in cut.items()}
                values_of_images.append(self(batch[image], names, cut_of_image))
            return {
                name: np.concatenate([values[name] for values in values_of_images])
                for name in values_of_images[0]
            }
        images = batch.astype(self.dtype)
        inputs = {self.program.image: images, **self._further_arrays(images)}
        known = {name: self._in_programs_layout(value) for name, value in inputs.items()}
        return self._run_steps(self.steps_for(names), known, names, cut)

    def is_unique(self, name: str) -> bool:
        """Say whether one value only has the name."""
        return sum(step.outputs.count(name) for step in self.program.steps) == 1

    def _in_programs_layout(self, value: Array) -> Numbers:
        """Return a map N×C×H×W in the layout that the program has."""
        return with_channels_last(value) if self.program.channels_last else value

    def _run_steps(
        self,
        steps: Sequence[OperatorCall],
        known: dict[str, Numbers],
        names: tuple[str, ...],
        cut: NamedArrays = UNCUT,
    ) -> dict[str, Array]:
        """Run steps on the values that are known, and return the values called `names`, maps as N×C×H×W. A
        value of `cut` is read by later steps in place of the computed one, which is returned all the same.
        """
        channels_last, results = self.program.channels_last, dict[str, Array]()
        last_read = last_uses((*step.inputs, *step.outputs) for step in steps)
        for step, unread in zip(steps, last_read, strict=True):
            values = self._run(step, known)
            known |= dict(zip(step.outputs, values, strict=True))
            results |= {name: known[name] for name in step.outputs if name in names}
            # After the results are noted: a cut counts for what reads the value.
            for name in cut.keys() & set(step.outputs):
                replacement = cut[name].astype(known[name].dtype)
                known[name] = replacement if name in self.arrays else self._in_programs_layout(replacement)
            for name in unread:
                known.pop(name, None)
        return {
            name: with_channels_first(value) if channels_last and name not in self.arrays else value
            for name, value in results.items()
        }

    def replay(self, other_values: NamedArrays) -> Iterator[tuple[OperatorCall, tuple[Numbers, ...]]]:
        """Run each step on the values that another engine gave, and yield it with its own outputs, so that
        the two can be compared operator by operator. Values that are not among these are read as the steps
        before give them.

        Args:
            other_values: by name, in the file's own axis order.

        Raises:
            CannotRun, Contradiction: as a call.
        """
        last_read = last_uses((*step.inputs, *step.outputs) for step in self.program.steps)
        known = dict(other_values)
        for step, unread in zip(self.program.steps, last_read, strict=True):
            values = self._run(step, known)
            yield step, values
            outputs = zip(step.outputs, values, strict=True)
            known |= {name: other_values.get(name, value) for name, value in outputs}
            for name in unread:
                known.pop(name, None)

    def _further_arrays(self, images: Array) -> dict[str, Array]:
        """Return arrays for the further inputs, by name, made of the images; empty if the program takes only
        images.
        """
        if self.takes is None:
            return {}
        names = (further.name for further in self.takes.further_inputs)
        return dict(zip(names, further_arrays(images, self.takes), strict=True))

    def steps_for(self, names: tuple[str, ...]) -> list[OperatorCall]:
        """Return the steps that the values called `names` depend on, in order, found from the last step
        backwards.
        """
        names_needed = set(names)
        steps = list[OperatorCall]()
        for step in reversed(self.program.steps):
            if names_needed.intersection(step.outputs):
                names_needed.update(step.inputs)
                steps.insert(0, step)
        return steps

    def _run(self, step: OperatorCall, known: Mapping[str, Numbers]) -> tuple[Numbers, ...]:
        """Run an operator by its row, which is a function of its attributes and inputs, and return its
        outputs; a single one too as a tuple. Raise CannotRun where the operator has no row, and Contradiction
        where its row fails on these inputs.
        """
        row = self.program.rows.get(step.op)
        if row is None:
            raise CannotRun(f"porter's own engine has no operator '{step.op}'", where=step.outputs[0])
        try:
            # Numbers may be infinite or not a number, as in the framework itself; they are compared.
            with np.errstate(all="ignore"):
                outputs = row(step.attributes, *(self._value(name, known) for name in step.inputs))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise Contradiction(
                f"porter reads this '{step.op}', and its own engine cannot run it: {reason}",
                where=step.outputs[0],
            ) from None
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def _value(self, name: str, known: Mapping[str, Numbers]) -> Any:
        """Return a value that is known or a tensor of the file, in the number type of this model if it is
        real; None for an input that is left out, whose name is empty.
        """
        if not name:
            return None
        value = known[name] if name in known else self.tensors[name]
        return value.astype(self.dtype, copy=False) if is_floating(value) else value


def expect_number_type(dtype: Dtype, what_is_done: str, advice: str = f"write {DTYPE('float32')}") -> None:
    """Refuse a number type that porter's own engine does not run.

    Args:
        what_is_done: in that type, for the message: `porter's own engine runs files`.

    Raises:
        UsageError: it is another one than float32 and float64.
    """
    if dtype not in _NUMBER_TYPES:
        message = f"{what_is_done} in {' and '.join(_NUMBER_TYPES)}, not in {dtype}"
        raise UsageError(message, where=DTYPE, next=advice)


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> NumpyModel:
    """Return the file's own graph as a program of its format's rows, with the file's tensors, in `dtype`; see
    porter.frameworks.Engine.build_file. `size` is unused: the rows take any.

    Raises:
        CannotRun: the format has no rows.
        UsageError: it is not run in this type.
    """
    graph, format = checkpoint.carried, known_format(checkpoint.format)
    if format is None or format.rows is None:
        raise CannotRun(f"porter's own engine does not run {checkpoint.format} files", where=checkpoint.path)
    expect_number_type(dtype, "porter's own engine runs files")
    program = import_module(format.rows).program(graph.definition)
    return NumpyModel(program, checkpoint.tensors, dtype, graph, graph.arrays)


def run_reference(
    model: NumpyModel, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run the program on a batch N×C×H×W and return by path the values that `taps` names, without those that
    the program lacks; see porter.frameworks.Engine.run_reference. A cut path whose name several values have
    is left out: only one of them should be replaced.
    """
    taps = {path: tap for path, tap in taps.items() if path not in cut or model.is_unique(tap)}
    replacements = {taps[path]: cut[path] for path in cut if path in taps}
    values = model(batch, tuple(dict.fromkeys(taps.values())), replacements)
    return {path: values[tap] for path, tap in taps.items() if tap in values}


def classifier(
    model: NumpyModel, protocol: Preprocess, device: str, how: Run, tap: str | None = None
) -> Classifier:
    """Return a classifier whose logits are the value called `tap`; see porter.frameworks.Engine.classifier.
    It runs on the CPU, in fp32.

    Raises:
        UsageError: the device or the run is another one, or no tap is given.
    """
    if device != "cpu" or how != FP32 or tap is None:
        raise UsageError(
            "porter's own engine gives named values in fp32 on the CPU",
            where=SOURCE,
            next=f"leave out {PRECISION}",
        )
    return make_cpu_classifier(lambda images: model(images, (tap,))[tap], protocol)
