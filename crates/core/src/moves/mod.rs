//! Moves of nodes between sites: what front-ends agree on by words that all of them read and swap.
//!
//! * [`words`]: the words, as bits and as values.
//! * [`numbering`]: numbers of sites and nodes that all front-ends have in common, and the digest that proves it.
//! * [`plan`]: whether a move may begin, whatever the load says.
//! * [`steps`]: the steps of a move, by its owner and by helpers.
//! * [`lease`]: when to help; how homes and nodes without words begin.
//! * [`evidence`]: when a site's load is reason enough.
//! * [`choice`]: which node moves.
//! * [`usual`]: what a site usually uses of its CPUs.
//! * [`carry`]: drain, hook and start of a moved node.
//! * [`agent`]: the part of a node's agent: drained, hook, what it keeps.
//! * [`probation`]: a node that cannot serve the site to which it has come goes back.
//! * [`quiet`]: since when a node has had no request, where no agent says that it is drained.
//! * [`mover`]: one front-end's part, each S.
//! * [`atomics`]: the same operations on bare words, as engines carry them out.
//! * [`follow`]: which of other front-ends' moves are followed at one look.
//! * [`home`]: what a home's words say, and how it begins.
//! * [`arrivals`]: what a node's word says, and how it begins.
//! * [`memory`]: the words of a cluster with one front-end.
//!
//! What this module does not know: transports, clocks, files. Words that were read come in, the next atomic goes
//! out. `docs/moves.md` has the protocol, and what checks it.

pub mod agent;
pub mod arrivals;
pub mod atomics;
pub mod carry;
pub mod choice;
pub mod evidence;
pub mod follow;
pub mod home;
pub mod lease;
pub mod memory;
pub mod mover;
pub mod numbering;
pub mod plan;
pub mod probation;
pub mod quiet;
pub mod steps;
pub mod usual;
pub mod words;
