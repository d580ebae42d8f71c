//! Load: when requests are due, what they ask for, and what came of them.
