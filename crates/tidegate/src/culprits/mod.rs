//! Culprits: what files show (`command`), and what a running front-end sees (`live`). Inputs, pictures and the report
//! are those of `tidegate_culprits`.

pub(crate) mod command;
mod front_end;
pub(crate) mod live;
pub(crate) mod peers;
