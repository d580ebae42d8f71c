//! Arguments of `tidegate simulate`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use tidegate_core::policy::PolicyKind;
use tidegate_sim::file::Half;

/// Options of `tidegate simulate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimulateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SimulateCommand>,
    /// A scenario file, or the name of a built-in scenario (see `tidegate simulate list`).
    #[arg(required = true)]
    pub(crate) scenario: Option<String>,
    /// This policy; repeatable [default: every policy, and the oracle].
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub(crate) policy: Vec<PolicyKind>,
    /// Another seed than the scenario's gives other arrivals, demands and antagonists.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Fewer requests than the scenario's: quicker, and noisier. Orders and faults come as much
    /// earlier.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<NonZeroU32>,
    /// Threads to run policies on [default: one per CPU].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimulateCommand {
    /// List the built-in scenarios.
    List,
    /// Run every policy in every built-in scenario and compare them.
    Compare(CompareArgs),
}

/// Options of `tidegate simulate compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Only scenarios with this in their name or family; repeatable, all must be there.
    #[arg(long, value_name = "PART")]
    pub(crate) only: Vec<String>,
    /// Which half of the scenarios: policies are tuned on one and reported on the other.
    #[arg(long, default_value = "all")]
    pub(crate) half: HalfArg,
    /// Only these policies beside `auto`; repeatable [default: every policy].
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub(crate) policy: Vec<PolicyKind>,
    /// Runs of each scenario, with its seed and the following ones.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seeds: NonZeroU32,
    /// Fewer requests than the scenario's: quicker, and noisier. Orders and faults come as much
    /// earlier.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<NonZeroU32>,
    /// Threads [default: one per CPU].
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// Which half of the scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HalfArg {
    /// The half that policies are tuned on.
    Tune,
    /// The half that results are reported on.
    Report,
    /// Both.
    All,
}

impl HalfArg {
    /// Whether scenarios of that half are wanted.
    pub(crate) fn has(self, half: Half) -> bool {
        match self {
            Self::All => true,
            Self::Tune => half == Half::Tune,
            Self::Report => half == Half::Report,
        }
    }
}

fn policies() -> impl TypedValueParser<Value = PolicyKind> {
    let names = PolicyKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names)
        .try_map(|name| PolicyKind::named(&name).ok_or("no such policy"))
}
