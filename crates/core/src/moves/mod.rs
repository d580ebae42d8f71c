//! Moves of nodes between sites: what front-ends agree on by words that all of them read and swap.
//!
//! * [`words`]: the words, as bits and as values.
//! * [`numbering`]: numbers of sites and nodes that all front-ends have in common, and the digest that proves it.
//!
//! What this module does not know: transports, clocks, files.

pub mod numbering;
pub mod words;
