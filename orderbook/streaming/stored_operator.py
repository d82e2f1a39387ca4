"""Stages as operators whose state is bytes, which any process can go on from."""

import pickle
from typing import Any

from engine.distribution.stage import Stage
from engine.protocol.stages import Running, StageOperator


class StoredOperator(StageOperator):
    """See StageOperator; `save` gives the state with the texts of its codes."""

    def __init__(self, stage: Stage, running: Running, saved: bytes | None = None) -> None:
        super().__init__(stage, running)
        self._words = running.words
        if saved is not None:
            state, texts = pickle.loads(saved)
            self._runner.restore(state, running.words.encode_all(texts))

    def save(self) -> Any:
        """Bytes."""
        return pickle.dumps((self._runner.copy(), self._words.strings()), pickle.HIGHEST_PROTOCOL)
