//! The cluster in a box: nodes that share one machine honestly.
