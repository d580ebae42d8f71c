//! Plain statistics on the same 30 s: what the discovery has to beat.
//!
//! ```text
//! Pearson D 1 s    completions per second; r > 0 and p < 0.01        as Elephants-2005
//! OLS D 1 s        least squares on completions per second; t > 3, share and cost as the discovery
//! OLS S .1 s       least squares on mass over life in 100 ms; t > 3, share and cost
//! lasso S .1 s     the same with |b| bounded (penalty 1.5 sqrt(n) sd), share and cost
//! ```
//!
//! Least squares take a tiny ridge, so that more classes than bins give an answer at all.

use tidegate_core::culprits::Pearson;
use tidegate_core::time::Timestamp;

use super::score::Named;
use super::trace::{Resource, Trace};

/// Seconds that are looked at.
const SECONDS: f64 = 30.0;
/// Gates, as the discovery's.
const SHARE_MIN: f64 = 0.042;
const LIFT_MIN: f64 = 2.0;
const T_MIN: f64 = 3.0;
const P_MAX: f64 = 0.01;
/// The lasso's penalty in units of sqrt(bins) x sd of the use.
const PENALTY: f64 = 1.5;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Baseline {
    /// Pearson's r on completions per second.
    Pearson,
    /// Least squares on completions per second.
    OlsCompletions,
    /// Least squares on mass over life in 100 ms.
    OlsMass,
    /// Lasso on mass over life in 100 ms.
    LassoMass,
}

impl Baseline {
    /// All.
    pub const ALL: &[Self] = &[
        Self::Pearson,
        Self::OlsCompletions,
        Self::OlsMass,
        Self::LassoMass,
    ];

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pearson => "Pearson D 1s p<.01",
            Self::OlsCompletions => "OLS D 1s",
            Self::OlsMass => "OLS S .1s",
            Self::LassoMass => "lasso S .1s",
        }
    }
}

/// Classes' series and the use, in bins.
struct Data {
    columns: Vec<Vec<f64>>,
    used: Vec<f64>,
    /// Requests of each class.
    requests: Vec<f64>,
    seconds: f64,
}

/// What a baseline names at the end of a run.
pub fn named_by(baseline: Baseline, trace: &Trace, resource: Resource) -> Named {
    let cores = trace.cores[resource.index()];
    match baseline {
        Baseline::Pearson => pearson(&read(trace, resource, 1.0, false)),
        Baseline::OlsCompletions => least_squares(&read(trace, resource, 1.0, false), cores),
        Baseline::OlsMass => least_squares(&read(trace, resource, 0.1, true), cores),
        Baseline::LassoMass => lasso(&read(trace, resource, 0.1, true), cores),
    }
}

fn read(trace: &Trace, resource: Resource, bin: f64, over_life: bool) -> Data {
    let seconds = SECONDS.min(trace.length);
    let bins = (seconds / bin).round() as usize;
    let start = trace.length - seconds;
    let place = |at: Timestamp| at.seconds_since(trace.at(0.0)) - start;
    let mut columns = vec![vec![0.0; bins]; trace.classes];
    for request in &trace.requests {
        let Some(ended) = request.ended else { continue };
        let column = &mut columns[usize::from(request.class.0)];
        let (from, to) = (place(request.sent) / bin, place(ended) / bin);
        if to < 0.0 {
            continue;
        }
        if !over_life {
            if let Some(count) = column.get_mut(to as usize) {
                *count += 1.0;
            }
            continue;
        }
        let life = (to - from).max(1e-6);
        let last = (to as usize).min(bins - 1);
        let spanned = column.iter_mut().enumerate().take(last + 1);
        for (place, mass) in spanned.skip(from.max(0.0) as usize) {
            let part = to.min((place + 1) as f64) - from.max(place as f64);
            *mass += part.max(0.0) / life;
        }
    }
    let mut used = vec![0.0; bins];
    for pair in trace.usage[resource.index()].windows(2) {
        let at = place(pair[0].at) / bin;
        if at >= 0.0
            && let Some(used) = used.get_mut(at as usize)
        {
            *used += (pair[1].busy_ns - pair[0].busy_ns) as f64 * 1e-9;
        }
    }
    Data {
        requests: columns.iter().map(|column| column.iter().sum()).collect(),
        columns,
        used,
        seconds,
    }
}

fn pearson(data: &Data) -> Named {
    let variance = |series: &[f64]| {
        let mean = series.iter().sum::<f64>() / series.len() as f64;
        series.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    };
    let classes = data
        .columns
        .iter()
        .enumerate()
        .filter_map(|(class, column)| {
            let found = Pearson::of(column, &data.used);
            // What the slope of the use on the completions says that one costs.
            let slope = found.r * (variance(&data.used) / variance(column).max(1e-12)).sqrt();
            (found.r > 0.0 && found.p < P_MAX).then_some((class, slope))
        });
    Named::plain(classes)
}

/// Share and cost as the discovery's gates have them.
fn matters(data: &Data, class: usize, cost: f64, cores: f64) -> bool {
    let share = cost * data.requests[class] / (data.seconds * cores);
    let mean = data.used.iter().sum::<f64>() / data.requests.iter().sum::<f64>().max(1.0);
    share >= SHARE_MIN && cost >= LIFT_MIN * mean
}

/// Columns and use without their means; classes that have any.
fn centred(data: &Data) -> (Vec<usize>, Vec<Vec<f64>>, Vec<f64>) {
    let centre = |series: &[f64]| -> Vec<f64> {
        let mean = series.iter().sum::<f64>() / series.len() as f64;
        series.iter().map(|x| x - mean).collect()
    };
    let classes: Vec<_> = (0..data.columns.len())
        .filter(|class| data.requests[*class] > 0.0)
        .collect();
    let columns = classes
        .iter()
        .map(|class| centre(&data.columns[*class]))
        .collect();
    (classes, columns, centre(&data.used))
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(x, y)| x * y).sum()
}

fn least_squares(data: &Data, cores: f64) -> Named {
    let (classes, columns, y) = centred(data);
    let many = classes.len();
    let mut gram: Vec<Vec<f64>> = columns
        .iter()
        .map(|one| columns.iter().map(|other| dot(one, other)).collect())
        .collect();
    for (place, row) in gram.iter_mut().enumerate() {
        row[place] = row[place] * (1.0 + 1e-6) + 1e-9;
    }
    let inverse = invert(gram);
    let xy: Vec<_> = columns.iter().map(|column| dot(column, &y)).collect();
    let costs: Vec<_> = inverse.iter().map(|row| dot(row, &xy)).collect();
    let squares: f64 = (0..y.len())
        .map(|bin| {
            let fitted: f64 = columns
                .iter()
                .zip(&costs)
                .map(|(column, cost)| column[bin] * cost)
                .sum();
            (y[bin] - fitted).powi(2)
        })
        .sum();
    let freedom = y.len() as f64 - many as f64 - 1.0;
    if freedom < 1.0 {
        // More classes than bins: nothing can be said.
        return Named::default();
    }
    let variance = squares / freedom;
    let named = (0..many).filter_map(|place| {
        let t = costs[place] / (variance * inverse[place][place]).max(1e-300).sqrt();
        let class = classes[place];
        (t > T_MIN && matters(data, class, costs[place], cores)).then_some((class, costs[place]))
    });
    Named::plain(named)
}

/// The inverse of a positive definite matrix by Gauss and Jordan.
fn invert(mut left: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let many = left.len();
    let mut right: Vec<Vec<f64>> = (0..many)
        .map(|i| (0..many).map(|j| f64::from(u8::from(i == j))).collect())
        .collect();
    for j in 0..many {
        let pivot = left[j][j];
        left[j].iter_mut().for_each(|x| *x /= pivot);
        right[j].iter_mut().for_each(|x| *x /= pivot);
        let (own_left, own_right) = (left[j].clone(), right[j].clone());
        for i in (0..many).filter(|i| *i != j) {
            let factor = left[i][j];
            let pairs = left[i].iter_mut().zip(&own_left);
            pairs.for_each(|(x, own)| *x -= factor * own);
            let pairs = right[i].iter_mut().zip(&own_right);
            pairs.for_each(|(x, own)| *x -= factor * own);
        }
    }
    right
}

fn lasso(data: &Data, cores: f64) -> Named {
    let (classes, mut columns, y) = centred(data);
    // On columns of one norm, by coordinate descent.
    let norms: Vec<f64> = columns
        .iter()
        .map(|column| dot(column, column).sqrt().max(1e-12))
        .collect();
    for (column, norm) in columns.iter_mut().zip(&norms) {
        column.iter_mut().for_each(|x| *x /= norm);
    }
    let sd = (dot(&y, &y) / y.len() as f64).sqrt();
    let penalty = PENALTY * sd;
    let mut costs = vec![0.0f64; classes.len()];
    let mut left = y;
    for _ in 0..200 {
        for (column, cost) in columns.iter().zip(&mut costs) {
            let wanted = dot(column, &left) + *cost;
            let next = (wanted.abs() - penalty).max(0.0) * wanted.signum();
            let step = next - *cost;
            if step != 0.0 {
                let pairs = left.iter_mut().zip(column);
                pairs.for_each(|(e, x)| *e -= step * x);
                *cost = next;
            }
        }
    }
    let named = classes
        .iter()
        .zip(costs)
        .zip(norms)
        .filter_map(|((class, cost), norm)| {
            let cost = cost / norm;
            matters(data, *class, cost, cores).then_some((*class, cost))
        });
    Named::plain(named)
}
