"""Text to token ids and back: the same text always gives the same ids, at about four characters a token."""

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable

VOCABULARY = 151_936
SPECIAL = {"<|endoftext|>": 151_643, "<|im_start|>": 151_644, "<|im_end|>": 151_645}
END_OF_TURN = SPECIAL["<|im_end|>"]

_FIRST_SPECIAL = 151_643
_REMEMBERED = 200_000
_SPECIAL_TEXT = {number: text for text, number in SPECIAL.items()}
_PIECE = re.compile(
    r"<\|endoftext\|>|<\|im_start\|>|<\|im_end\|>"
    r"| ?[^\W\d_]{1,6}| ?\d{1,3}|\s+(?=\s)| ?[^\w\s]{1,3}|\s|_+|.",
    re.DOTALL,
)


class Tokenizer:
    """Hashes pieces of text to ids; remembers the pieces it has seen to turn ids into text again."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, str] = OrderedDict()

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        return [self._number(piece) for piece in _PIECE.findall(text)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of `tokens`; an id never seen before becomes a replacement character."""
        return "".join(self.piece(token) for token in tokens)

    def piece(self, token: int) -> str:
        """Return the text of one token."""
        return _SPECIAL_TEXT.get(token) or self._texts.get(token, "\N{REPLACEMENT CHARACTER}")

    def _number(self, piece: str) -> int:
        special = SPECIAL.get(piece)
        if special is not None:
            return special
        number = zlib.crc32(piece.encode()) % _FIRST_SPECIAL
        if number not in self._texts:
            if len(self._texts) >= _REMEMBERED:
                self._texts.popitem(last=False)
            self._texts[number] = piece
        return number
