//! The core against modelled clusters, in virtual time.
