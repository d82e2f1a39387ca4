"""Copies of what messages change of boards, so that orders can go back to an earlier message."""

from orderbook.jit import jit
from orderbook.memory import load, move, record_at
from strategies.simulation.queue import BOARD, PLACE, TAKEN, board_at, taken_at

_BOARD_WORDS, _PLACE_WORDS, _TAKEN_WORDS = (dtype.itemsize // 8 for dtype in (BOARD, PLACE, TAKEN))
_place_at = record_at(PLACE)


@jit()
def _copied(address: int, words: int, buffer: int, back: bool) -> int:
    """Copies words to a buffer, or back; where it goes on. Without one, at 0 or below, it counts bytes."""
    if buffer <= 0:
        return buffer - 8 * words
    if back:
        move(buffer, address, words)
    else:
        move(address, buffer, words)
    return buffer + 8 * words


@jit()
def _copied_side(side: int, count: int, buffer: int, back: bool) -> int:
    for number in range(count):
        address = load(side + 8 * number)
        buffer = _copied(address, _PLACE_WORDS, buffer, back)
        place = _place_at(address)
        buffer = _copied(place.ahead, 2 * place.count, buffer, back)
    return buffer


@jit()
def copied_board(address: int, buffer: int, back: bool) -> int:
    """Copies what messages change of a board to a buffer, or back from it; where the buffer goes on.

    With 0 it counts: the bytes that it needs, below 0. Between a copy and the way back nothing else may have
    been done to the board.
    """
    buffer = _copied(address, _BOARD_WORDS, buffer, back)
    board = board_at(address)
    buffer = _copied_side(board.bids, board.bids_count, buffer, back)
    buffer = _copied_side(board.asks, board.asks_count, buffer, back)
    buffer = _copied(board.taken, _TAKEN_WORDS, buffer, back)
    taken = taken_at(board.taken)
    buffer = _copied(taken.bids, 2 * taken.bids_count, buffer, back)
    return _copied(taken.asks, 2 * taken.asks_count, buffer, back)
