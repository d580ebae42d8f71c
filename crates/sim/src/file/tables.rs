//! The tables of a scenario file as they are written: keys, types, units. What the values mean
//! together is `build`'s business.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use tidegate_core::units::parse_duration;
use toml::Spanned;

use super::Half;

/// A duration with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, like \"10ms\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                let found = parse_duration(text).map(Time);
                found.map_err(|why| E::custom(format_args!("`{text}` is not a duration: {why}")))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// One number for all nodes of a group, or two between which they are evenly spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) first: f64,
    pub(super) last: f64,
}

impl Spread {
    pub(super) const ONE: Self = Self {
        first: 1.0,
        last: 1.0,
    };

    /// The value of one of `count`.
    pub(super) fn at(self, index: u32, count: u32) -> f64 {
        let steps = f64::from(count.saturating_sub(1).max(1));
        self.first + (self.last - self.first) * f64::from(index) / steps
    }
}

impl<'de> Deserialize<'de> for Spread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrTwo;
        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Spread;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a list of two between which nodes are spread")
            }
            fn visit_f64<E: de::Error>(self, one: f64) -> Result<Spread, E> {
                Ok(Spread {
                    first: one,
                    last: one,
                })
            }
            fn visit_i64<E: de::Error>(self, one: i64) -> Result<Spread, E> {
                self.visit_f64(one as f64)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Spread, A::Error> {
                match (
                    list.next_element()?,
                    list.next_element()?,
                    list.next_element::<f64>()?,
                ) {
                    (Some(first), Some(last), None) => Ok(Spread { first, last }),
                    _ => Err(de::Error::invalid_length(0, &self)),
                }
            }
        }
        deserializer.deserialize_any(OneOrTwo)
    }
}

/// A table that can be turned off by `false`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OrFalse<T> {
    No,
    Table(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrFalse<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableOrFalse<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableOrFalse<T> {
            type Value = OrFalse<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or false for none")
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
                if value {
                    return Err(E::custom("write a table; `true` says nothing about it"));
                }
                Ok(OrFalse::No)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrFalse::Table)
            }
        }
        deserializer.deserialize_any(TableOrFalse(std::marker::PhantomData))
    }
}

/// The whole file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTable {
    pub(super) name: Spanned<String>,
    pub(super) description: String,
    pub(super) source: String,
    pub(super) family: String,
    pub(super) half: Half,
    #[serde(default)]
    pub(super) guessed: Vec<String>,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) requests: Spanned<u32>,
    pub(super) golden_requests: Option<Spanned<u32>>,
    pub(super) warm_up: Option<Spanned<f64>>,
    pub(super) front_ends: FrontEndsTable,
    #[serde(default)]
    pub(super) network: NetworkTable,
    pub(super) site: Spanned<Vec<SiteTable>>,
    pub(super) nodes: Spanned<Vec<Spanned<NodesTable>>>,
    #[serde(default)]
    pub(super) r#override: Vec<OverrideTable>,
    #[serde(default)]
    pub(super) join: Vec<JoinTable>,
    #[serde(default)]
    pub(super) leave: Vec<Spanned<LeaveTable>>,
    #[serde(default)]
    pub(super) fault: Vec<Spanned<FaultTable>>,
    #[serde(default)]
    pub(super) expect: ExpectTable,
}

fn one() -> u64 {
    1
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FrontEndsTable {
    pub(super) count: Spanned<u32>,
    pub(super) subset: Option<Spanned<u32>>,
    pub(super) tick: Option<Spanned<Time>>,
    pub(super) timeout: Option<Spanned<Time>>,
    pub(super) words: Option<bool>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkTable {
    pub(super) delay: Option<Spanned<Time>>,
    #[serde(default)]
    pub(super) jitter: Time,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    pub(super) load: Spanned<f64>,
    pub(super) mean_demand: Option<Spanned<Time>>,
    pub(super) demand: Option<Spanned<DemandTable>>,
    pub(super) bursts: Option<BurstsTable>,
    pub(super) io: Option<IoTable>,
    pub(super) admission: Option<AdmissionTable>,
    pub(super) slow_start: Option<Spanned<Time>>,
    pub(super) priorities: Option<Spanned<Vec<f64>>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdmissionTable {
    pub(super) mode: Spanned<String>,
    pub(super) slo: Option<Spanned<Time>>,
    pub(super) queue: Option<Spanned<u32>>,
    pub(super) connections: Option<Spanned<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    Fixed,
    Exponential,
    LogNormal,
    Bimodal,
    Pareto,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DemandTable {
    pub(super) shape: Shape,
    pub(super) cv: Option<Spanned<f64>>,
    pub(super) share: Option<Spanned<f64>>,
    pub(super) ratio: Option<Spanned<f64>>,
    pub(super) tail: Option<Spanned<f64>>,
    pub(super) spread: Option<Spanned<f64>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BurstsTable {
    pub(super) peak: Spanned<f64>,
    pub(super) share: Spanned<f64>,
    pub(super) length: Spanned<Time>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IoTable {
    pub(super) mean: Spanned<Time>,
    pub(super) shape: Option<Spanned<DemandTable>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodesTable {
    pub(super) count: Spanned<u32>,
    pub(super) site: Option<Spanned<u32>>,
    pub(super) cores: Spanned<Spread>,
    pub(super) speed: Option<Spanned<Spread>>,
    pub(super) allocation: Option<Spanned<f64>>,
    pub(super) weight: Option<Spanned<f32>>,
    pub(super) antagonist: Option<AntagonistTable>,
    pub(super) io_channels: Option<Spanned<u32>>,
    pub(super) io_slowness: Option<Spanned<f64>>,
    pub(super) limit: Option<Spanned<u32>>,
    pub(super) workers: Option<Spanned<u32>>,
    pub(super) crowd_cost: Option<Spanned<f64>>,
    pub(super) warming: Option<WarmingTable>,
    pub(super) records: Option<OrFalse<RecordsTable>>,
    #[serde(default)]
    pub(super) reports: bool,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AntagonistTable {
    pub(super) tasks: Spanned<u32>,
    pub(super) duty: Spanned<f64>,
    pub(super) shortest: Option<Spanned<Time>>,
    pub(super) longest: Option<Spanned<Time>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordsTable {
    pub(super) rung: Option<Spanned<String>>,
    pub(super) interval: Option<Spanned<Time>>,
    #[serde(default)]
    pub(super) published: Time,
    #[serde(default)]
    pub(super) age: Time,
    #[serde(default)]
    pub(super) delay: Time,
    pub(super) loss: Option<Spanned<f64>>,
    pub(super) in_flight: Option<bool>,
    pub(super) scope: Option<ScopeName>,
    pub(super) process: Option<Spanned<Time>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScopeName {
    Host,
    Requests,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverrideTable {
    pub(super) at: Time,
    pub(super) nodes: Spanned<Vec<u32>>,
    pub(super) state: Spanned<String>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WarmingTable {
    pub(super) times: Spanned<f64>,
    pub(super) requests: Spanned<f64>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaveTable {
    pub(super) nodes: Spanned<Vec<u32>>,
    pub(super) from: Spanned<Time>,
    pub(super) to: Spanned<Time>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinTable {
    pub(super) at: Time,
    pub(super) nodes: Spanned<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FaultName {
    Dead,
    Paused,
    Failing,
    Breaking,
    Flapping,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    pub(super) kind: FaultName,
    pub(super) nodes: Spanned<Vec<u32>>,
    pub(super) from: Spanned<Time>,
    pub(super) to: Option<Spanned<Time>>,
    pub(super) period: Option<Spanned<Time>>,
    pub(super) down: Option<Spanned<f64>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    pub(super) least_share: Option<f64>,
    pub(super) herding: Option<f64>,
    pub(super) failed: Option<f64>,
}
