//! The report for people: verdicts first, then Pearson's r and p.

use std::collections::BTreeMap;

use tidegate_core::culprits::Basis;

use super::report::{Class, Mode, Pair, Report, Resource};
use crate::table;
use crate::time::show;

/// Letters of a class's name that are shown, unless it would look like another's; so many of them are its end.
const CLASS_WIDTH: usize = 60;
const CLASS_END: usize = 24;

impl Report {
    /// All resources; so many classes in each table of correlations.
    pub fn text(&self, top: usize) -> String {
        let mut text = String::new();
        for note in &self.notes {
            text += &format!("{}\n", visible(note));
        }
        for resource in &self.resources {
            text += &self.resource(resource, top);
        }
        if self.resources.is_empty() {
            text += "no resource is known\n";
        }
        text
    }

    fn resource(&self, resource: &Resource, top: usize) -> String {
        let name = visible(&resource.name);
        let mut text = format!("\n{name}: {}\n", mean_use(resource));
        text += &self.verdicts(resource);
        text += &self.correlations(resource, top);
        text
    }

    /// Classes with what is known of them and the resource.
    fn pairs<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = (&'a Class, &'a Pair)> {
        let pair = |class: &'a Class| class.pairs.iter().find(|it| it.resource == resource.name);
        self.classes
            .iter()
            .filter_map(move |class| Some((class, pair(class)?)))
    }

    fn verdicts(&self, resource: &Resource) -> String {
        let live = self.mode == Mode::Live;
        let Some(seconds) = resource.verdict_seconds else {
            let rate = resource.unit == "per second";
            return match live && !rate {
                true => "not known yet: too little data for a verdict\n".into(),
                false => String::new(),
            };
        };
        let mut accused: Vec<_> = self
            .pairs(resource)
            .filter(|(_, pair)| pair.confidence.is_some())
            .collect();
        let early = match is_early(resource) {
            true => "not known yet: ",
            false => "",
        };
        if accused.is_empty() {
            return format!("{early}nobody is accused, by {seconds:.0} s of data\n");
        }
        accused.sort_by(|one, other| {
            let share = |pair: &Pair| pair.share.unwrap_or(0.0);
            share(other.1).total_cmp(&share(one.1))
        });
        let names = [
            "class",
            "verdict",
            "share",
            "ms per request",
            "r",
            "p",
            "since",
        ];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        let mut text = String::new();
        if is_early(resource) {
            text += &format!(
                "not known yet: who is accused by {seconds:.0} s of data may be innocent\n"
            );
        }
        let shown = shown(accused.iter().map(|(class, _)| class.name.as_str()));
        for ((class, pair), name) in accused.into_iter().zip(shown) {
            rows.push(vec![
                name,
                pair.confidence.clone().unwrap_or_default() + if doubtful(pair) { "?" } else { "" },
                at_most(pair, percent(pair.share)),
                at_most(pair, cost(pair)),
                correlation(pair.pearson_r),
                correlation(pair.pearson_p),
                pair.named_at
                    .map_or("–".into(), |at| show((at * 1e9) as i64)),
            ]);
            if doubtful(pair) {
                let class = visible(&class.name);
                text += &format!(
                    "{class} may be merely slow: the resource is full, and only durations tell\n"
                );
            }
            if !pair.ambiguous_with.is_empty() {
                let with: Vec<_> = pair.ambiguous_with.iter().map(|it| visible(it)).collect();
                let (class, with) = (visible(&class.name), with.join(", "));
                text += &format!("{class} cannot be told from {with}: they run together\n");
            }
            if let Some(throttle) = &class.throttle {
                let (limits, by) = (visible(&throttle.limits), visible(&throttle.by));
                let class = visible(&class.name);
                text += &format!("{class} is throttled: {limits}, by {by}\n");
            }
        }
        table::numbers(&rows) + &text
    }

    fn correlations(&self, resource: &Resource, top: usize) -> String {
        let mut known: Vec<(&Class, &Pair, f64)> = self
            .pairs(resource)
            .filter_map(|(class, pair)| Some((class, pair, pair.pearson_r?)))
            .collect();
        if known.is_empty() {
            return "  logs and resource share too little time: see --utc-offset\n".into();
        }
        known.sort_by(|one, other| other.2.total_cmp(&one.2));
        let names = [
            "completions and use",
            "requests",
            "mean ms",
            "seen from ms",
            "r",
            "p",
        ];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        let most = &known[..top.min(known.len())];
        let shown = shown(most.iter().map(|(class, ..)| class.name.as_str()));
        for ((class, pair, _), name) in most.iter().zip(shown) {
            rows.push(vec![
                name,
                class.requests.to_string(),
                mean_ms(class).map_or("–".into(), table::millis),
                pair.least_cost_ms.map_or("–".into(), table::millis),
                correlation(pair.pearson_r),
                correlation(pair.pearson_p),
            ]);
        }
        let mut text = format!("\n{}", table::numbers(&rows));
        let more = known.len().saturating_sub(top);
        if more > 0 {
            text += &format!("and {more} more classes: see --top\n");
        }
        text
    }
}

/// Whether too little was seen of it so far.
fn is_early(resource: &Resource) -> bool {
    resource.basis.as_deref() == Some(Basis::NotYet.label())
}

/// Whether it rests on durations alone, which cannot tell slow from dear.
fn doubtful(pair: &Pair) -> bool {
    pair.doubtful
}

fn at_most(pair: &Pair, figure: String) -> String {
    match doubtful(pair) {
        true => format!("≤ {figure}"),
        false => figure,
    }
}

fn mean_use(resource: &Resource) -> String {
    let used: Vec<f64> = resource.used.iter().copied().flatten().collect();
    if used.is_empty() {
        return "its use is not known".into();
    }
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    if resource.unit == "per second" {
        return format!("mean {mean:.1} per second");
    }
    let full = match resource.saturated_share {
        Some(share) if share >= 0.005 => format!(", full {} of the time", percent(Some(share))),
        Some(_) | None => String::new(),
    };
    let (capacity, unit) = (resource.capacity, &resource.unit);
    format!("mean use {mean:.3} of {capacity} {unit}{full}")
}

fn cost(pair: &Pair) -> String {
    if pair.cost_bounded
        && !doubtful(pair)
        && let (Some(low), Some(high)) = (pair.cost_low_ms, pair.cost_high_ms)
    {
        return format!("{} to {}", table::millis(low), table::millis(high));
    }
    let error = pair
        .cost_error
        .map(|it| format!(" ± {}", percent(Some(it))));
    pair.cost_ms.map_or("–".into(), |cost| {
        format!("{}{}", table::millis(cost), error.unwrap_or_default())
    })
}

fn mean_ms(class: &Class) -> Option<f64> {
    let per_second = class.per_second.filter(|rate| *rate > 0.0)?;
    Some(1e3 * class.in_progress? / per_second)
}

fn percent(share: Option<f64>) -> String {
    match share {
        Some(share) if share < 0.1 => format!("{:.1} %", 100.0 * share),
        Some(share) => format!("{:.0} %", 100.0 * share),
        None => "–".into(),
    }
}

fn correlation(value: Option<f64>) -> String {
    match value {
        Some(value) => format!("{value:.4}"),
        None => "–".into(),
    }
}

/// Names of one table, without the middle of those that are too long. Those that would look alike are shown whole.
fn shown<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let whole: Vec<String> = names.map(visible).collect();
    let short: Vec<String> = whole.iter().map(|name| shortened(name)).collect();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for name in &short {
        *times.entry(name).or_default() += 1;
    }
    let pairs = short.iter().zip(&whole);
    let name = |(short, whole): (&String, &String)| match times.get(short.as_str()) {
        Some(1) => short.clone(),
        Some(_) | None => whole.clone(),
    };
    pairs.map(name).collect()
}

fn shortened(name: &str) -> String {
    let many = name.chars().count();
    if many <= CLASS_WIDTH {
        return name.to_owned();
    }
    let head = name.chars().take(CLASS_WIDTH - CLASS_END - 1);
    let tail = name.chars().skip(many - CLASS_END);
    head.chain(['…']).chain(tail).collect()
}

/// Names come from clients: what could steer a terminal does not get there.
fn visible(text: &str) -> String {
    let letter = |letter: char| {
        if letter.is_control() {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(letter).collect()
}
