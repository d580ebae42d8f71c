//! Pictures as data: what is drawn, not how.

use serde::{Deserialize, Serialize};

use super::metric::Metric;
use super::range::Range;
use super::report::ArmResult;

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// Lines with their ranges as bands.
    Lines {
        /// Above it.
        title: String,
        /// Across.
        x: Axis,
        /// Upwards.
        y: Axis,
        /// One per arm.
        series: Vec<Line>,
    },
    /// Groups of bars with their ranges as whiskers.
    Bars {
        /// Above it.
        title: String,
        /// Upwards.
        y: Axis,
        /// Names of the groups.
        groups: Vec<String>,
        /// One per arm.
        series: Vec<Bars>,
    },
    /// What happened over the time.
    Series {
        /// Above it.
        title: String,
        /// Across, usually seconds.
        x: Axis,
        /// Upwards.
        y: Axis,
        /// One per arm.
        series: Vec<Curve>,
        /// Moments worth pointing at.
        marks: Vec<Mark>,
    },
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// Whether equal steps are equal factors.
    pub log: bool,
    /// Whether it begins at zero even if nothing is near it; bars always do unless `log`.
    pub zero: bool,
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Whether it is another project's: then it is dashed.
    pub peer: bool,
    /// By ascending x.
    pub points: Vec<Point>,
}

/// One point with its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// From here …
    pub min: f64,
    /// … to here.
    pub max: f64,
}

/// One arm's bars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Its name.
    pub name: String,
    /// Whether it is another project's.
    pub peer: bool,
    /// One per group; none where nothing was measured.
    pub values: Vec<Option<Range>>,
}

/// One arm's course over the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Whether it is another project's.
    pub peer: bool,
    /// By ascending x.
    pub points: Vec<(f64, f64)>,
}

/// A moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub x: f64,
    /// What happened then.
    pub text: String,
}

impl Axis {
    /// A linear axis that begins where the data do.
    pub fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            ..Self::default()
        }
    }

    /// A linear axis that begins at zero.
    pub fn from_zero(label: &str) -> Self {
        Self {
            zero: true,
            ..Self::linear(label)
        }
    }

    /// A logarithmic axis.
    pub fn log(label: &str) -> Self {
        Self {
            log: true,
            ..Self::linear(label)
        }
    }
}

impl Plot {
    /// A quantity of all arms over a parameter of its labels: `throughput_rps` over `alpha` takes
    /// every `throughput_rps[alpha=…]`.
    pub fn over(
        title: &str,
        arms: &[ArmResult],
        quantity: &str,
        parameter: &str,
        x: Axis,
        y: Axis,
    ) -> Self {
        let line = |arm: &ArmResult| {
            let measured = arm.metrics.iter().filter(|(_, range)| range.is_known());
            let point = |(name, range): (&String, &Range)| {
                let metric = Metric::of(name);
                let x = (metric.quantity == quantity).then(|| metric.parameter(parameter))??;
                Some(Point {
                    x,
                    y: range.median,
                    min: range.min,
                    max: range.max,
                })
            };
            let mut points: Vec<_> = measured.filter_map(point).collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            Line {
                name: arm.arm.clone(),
                peer: arm.peer,
                points,
            }
        };
        let series = arms.iter().map(line).filter(|line| !line.points.is_empty());
        Self::Lines {
            title: title.to_owned(),
            x,
            y,
            series: series.collect(),
        }
    }

    /// Some metrics of all arms as groups of bars: each group has its name and its metric.
    pub fn groups(title: &str, arms: &[ArmResult], groups: &[(&str, &str)], y: Axis) -> Self {
        let bars = |arm: &ArmResult| Bars {
            name: arm.arm.clone(),
            peer: arm.peer,
            values: groups
                .iter()
                .map(|(_, metric)| arm.metrics.get(*metric).filter(|it| it.is_known()).cloned())
                .collect(),
        };
        let series = arms.iter().map(bars);
        Self::Bars {
            title: title.to_owned(),
            y,
            groups: groups.iter().map(|(name, _)| (*name).to_owned()).collect(),
            series: series
                .filter(|it| it.values.iter().any(Option::is_some))
                .collect(),
        }
    }

    /// Names of its series, and whether they are peers.
    pub(super) fn names(&self) -> Vec<(&str, bool)> {
        match self {
            Self::Lines { series, .. } => series.iter().map(|it| (&*it.name, it.peer)).collect(),
            Self::Bars { series, .. } => series.iter().map(|it| (&*it.name, it.peer)).collect(),
            Self::Series { series, .. } => series.iter().map(|it| (&*it.name, it.peer)).collect(),
        }
    }

    /// What stands above it.
    pub fn title(&self) -> &str {
        match self {
            Self::Lines { title, .. } | Self::Bars { title, .. } | Self::Series { title, .. } => {
                title
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample::report;

    #[test]
    fn a_quantity_becomes_lines_over_its_parameter() {
        let arms = report().arms;
        let (x, y) = (Axis::linear("alpha"), Axis::from_zero("requests/s"));
        let Plot::Lines { series, .. } = Plot::over("t", &arms, "throughput_rps", "alpha", x, y)
        else {
            panic!("not lines");
        };
        assert_eq!(series.len(), arms.len());
        let xs: Vec<_> = series[0].points.iter().map(|it| it.x).collect();
        assert_eq!(xs, [0.1, 0.5, 0.9]);
    }

    #[test]
    fn metrics_become_groups_of_bars_with_gaps() {
        let arms = report().arms;
        let groups = [("low", "p99_ms[load=0.9]"), ("high", "p99_ms[load=1.27]")];
        let Plot::Bars { series, .. } = Plot::groups("t", &arms, &groups, Axis::log("ms")) else {
            panic!("not bars");
        };
        assert_eq!(series.len(), 3);
        assert!(series[1].values[0].is_some() && series[1].values[1].is_none());
    }
}
