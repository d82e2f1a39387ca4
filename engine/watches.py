"""Subscriptions as watches of a program."""

from views.compiler.binding.watch_condition import bind_condition
from views.compiler.program import CompiledProgram

from .runtime import Watch
from .subscriptions import Subscription


def watch_of(program: CompiledProgram, view: str, when: str | None, per_message: bool, edge: bool) -> Watch:
    """The watch of a view; `when` is a condition as in WHERE. Raises SqlError that names it."""
    condition = None if when is None else bind_condition(program.program, view, when, program.parameters)
    return Watch(view, condition, per_message, edge)


def rebound(program: CompiledProgram, subscription: Subscription) -> Watch:
    """A subscription's watch in another program, which may call what a view reads otherwise."""
    watch = subscription.watch
    return watch_of(program, watch.view, subscription.when, watch.per_message, watch.edge)
