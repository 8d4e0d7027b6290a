# What the experiments' own tables are computed with: `jq -L experiments 'include "statistics"; ...'`.
def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def two: if . == null then "-" else . * 100 | round / 100 end;
# Median and range of a list with a value a round.
def spread: if length == 0 then "-" else "\(median | two) (\(min | two) to \(max | two), \(length) round\(if length == 1 then "" else "s" end))" end;
