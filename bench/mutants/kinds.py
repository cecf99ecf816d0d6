"""Small defects that a program makes in a source file, one at a time: what a test suite has to notice.

The kinds are those of mutation testing (DeMillo, Lipton and Sayward, 1978), and three of this project: a scope that is
removed, another device, a check that never fails.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

OPPOSITE = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OTHER_SUM = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "*"}


@dataclass(frozen=True)
class Mutant:
    """One defect: a piece of a file, and what takes its place.

    Attributes:
        kind: what is done.
        line: first line of the piece, from 1.
        start: offset of the piece in the file, in bytes.
        end: where it ends.
        text: what takes its place.
    """

    kind: str
    line: int
    start: int
    end: int
    text: str

    def of(self, source: bytes) -> bytes:
        """The file with the defect."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(source: bytes) -> list[Mutant]:
    """All defects of a file, in order."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def made(kind: str, node: ast.expr | ast.stmt, text: str) -> Mutant:
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        return Mutant(kind, node.lineno, start, end, text)

    found = [made(*change) for node in _code(tree) for change in _changes(node)]
    return sorted(found, key=lambda mutant: (mutant.start, mutant.kind))


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: annotations, and what types alone are made of, do not."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield node
                yield from _code(node)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """What is done to a node: a kind, the piece that goes, and what takes its place."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield "flipped comparison", node, f"({ast.unparse(left)} {OPPOSITE[type(op)]} {ast.unparse(right)})"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield "and for or", node, f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OTHER_SUM and not _is_text(left, right):
            yield "other sum", node, f"(({ast.unparse(left)}) {OTHER_SUM[type(op)]} ({ast.unparse(right)}))"
        case ast.Constant(value=bool(value)):
            yield "true for false", node, str(not value)
        case ast.Constant(value=int(value)):
            yield "off by one", node, str(value + 1)
        case ast.Expr(value=ast.Call()):
            yield "dropped call", node, "pass"
        case ast.With(items=[ast.withitem(context_expr=scope, optional_vars=None), *_]):
            yield "removed scope", scope, '__import__("contextlib").nullcontext()'
        case ast.If(test=test, body=[ast.Raise(), *_]):
            yield "check that never fails", test, "False"
        case ast.Call(func=ast.Attribute(attr="device"), args=[device]):
            yield "other device", device, '"CPU:1"'


def _is_text(*nodes: ast.expr) -> bool:
    """Texts are joined, and formatted, by the same signs."""
    return any(isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", 0), str) for node in nodes)
