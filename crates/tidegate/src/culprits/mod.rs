//! Culprits: what files show (`command`), and what a running front-end gives to discovery (`front_end`) and asks of the
//! other front-ends (`peers`), each of which counts once (`heard`). Discovery, inputs, pictures and the report are those
//! of `tidegate_culprits`.

pub(crate) mod command;
pub(crate) mod front_end;
pub(crate) mod heard;
pub(crate) mod peers;
