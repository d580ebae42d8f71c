//! What an experiment found: ranges, verdicts, tables and plots.
