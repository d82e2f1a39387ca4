"""What a query may be given as."""

from orderbook.errors import SqlError
from views.compiler.ibis_text import IbisExpression, ibis_text, is_ibis

Question = str | IbisExpression


def question_text(query: Question) -> str:
    """The SQL of a query. Raises SqlError where it is neither SQL nor an expression of ibis."""
    if isinstance(query, str):
        return query
    if is_ibis(query):
        return ibis_text(query)
    raise SqlError(f"a query is SQL text or an ibis expression, not {type(query).__name__}")
