//! Discovery in a running front-end, as far as it needs nothing of the front-end but what it is given.

pub mod exchange;
pub mod experiment;
pub mod findings;
pub mod front_end;
pub mod memory;
pub mod policy;
pub mod requests;
pub mod series;
pub mod watched;
