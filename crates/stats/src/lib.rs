//! Statistics of interleaved pairs: medians, bootstrap intervals, verdicts. Pure: chance is a seed.
