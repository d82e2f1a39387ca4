"""What generated source may be: the last thing that stands between a text and its being run.

Generated modules are written of numbers and of parts that stand in our source (generate/numbering.py). This
looks at the syntax tree of the whole, before it is written to the cache folder: it holds functions over names
that it binds itself, imports from this project alone, and no strings but layouts and docstrings.
"""

import ast
import re
from collections.abc import Iterator

_STATEMENTS = (
    ast.Module, ast.FunctionDef, ast.ImportFrom, ast.Import, ast.Assign, ast.AugAssign, ast.Expr, ast.Return,
    ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.keyword, ast.Subscript, ast.Slice, ast.Tuple,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.expr_context, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop, ast.arguments, ast.arg, ast.alias,
)  # fmt: skip
_KINDS = (*_STATEMENTS, *_EXPRESSIONS)
_BUILTINS = frozenset(("abs", "bool", "float", "int", "len", "max", "min", "range"))
_DECORATORS = frozenset(("exported", "jit", "primitive"))
_IMPORTED = re.compile(r"(engine|orderbook|views)(\.[a-z][a-z0-9_]*)+|orderbook_[a-zA-Z0-9_]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}|_[a-z]{0,63}")
_STRING = re.compile(r"[iwWd]*|numpy")
_DOCSTRING = re.compile(r"[ -~\n]*")


def check_source(text: str) -> None:
    """Raises ValueError, which says where, for source that no generator of ours writes."""
    if not text.isascii():
        raise ValueError("generated source has letters that are not ASCII at line 1; it is not run")
    _Checked(ast.parse(text))


class _Checked:
    """One module's tree; names of the module are not those of a function's variables."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = _BUILTINS | set(_bound(tree.body))
        docstrings = {id(d) for d in _docstrings(tree)}
        for node in ast.walk(tree):
            self._node(node, docstrings)
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                self._function(statement)
            else:
                self._known(statement, self.module)

    def _node(self, node: ast.AST, docstrings: set[int]) -> None:
        if not isinstance(node, _KINDS):
            raise _error("a form that generated code does not have", node)
        match node:
            case ast.Constant(str() as value):
                allowed = _DOCSTRING if id(node) in docstrings else _STRING
                if not allowed.fullmatch(value):
                    raise _error("a string", node)
            case ast.Constant(value) if not isinstance(value, int | float):
                raise _error("a constant", node)
            case ast.ImportFrom(str() as module, level=0) if _IMPORTED.fullmatch(module):
                pass
            case ast.Import([ast.alias("numpy", "np")]) | ast.alias("numpy", "np"):
                pass
            case ast.Import() | ast.ImportFrom():
                raise _error("an import", node)
            case ast.Attribute(_, name) | ast.Name(name) | ast.arg(name) | ast.alias(name, None):
                if not _NAME.fullmatch(name):
                    raise _error("a name", node)
            case ast.FunctionDef(name):
                if not _NAME.fullmatch(name):
                    raise _error("a name", node)
            case ast.alias():
                raise _error("an import", node)
            case ast.Call(ast.Name() | ast.Attribute(ast.Name() | ast.Attribute())):
                pass
            case ast.Call():
                raise _error("a call", node)

    def _function(self, function: ast.FunctionDef) -> None:
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not (isinstance(called, ast.Name) and called.id in _DECORATORS):
                raise _error("a decorator", decorator)
        own = set(_bound(function.body)) | {a.arg for a in function.args.args}
        shadowed = own & self.module
        if shadowed:
            raise _error(f"a variable that is called as something of the module, {min(shadowed)},", function)
        for statement in function.body:
            self._known(statement, self.module | own)

    def _known(self, statement: ast.stmt, names: set[str] | frozenset[str]) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id not in names:
                raise _error(f"the unknown name {node.id}", node)
            if isinstance(node, ast.FunctionDef):
                raise _error("a function inside of something", node)


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    """The names that statements bind."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Name(name, ast.Store()):
                    yield name
                case ast.alias(name, own):
                    yield own or name


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for owner in (tree, *tree.body):
        if isinstance(owner, ast.Module | ast.FunctionDef) and owner.body:
            match owner.body[0]:
                case ast.Expr(ast.Constant(str()) as said):
                    yield said


def _error(what: str, node: ast.AST) -> ValueError:
    return ValueError(f"generated source has {what} at line {getattr(node, 'lineno', 1)}; it is not run")
