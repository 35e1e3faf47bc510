"""One outside thing a file, wrapped 1:1 into functions that return small frozen values. Judgement lives above."""
