//! Raw data of a bounded size: long series are thinned to every so manieth entry.
//!
//! The outermost array, one entry per run, is left whole; everything long below it is thinned, the
//! harder the larger the whole is. Histograms are strings and stay as they are.

use serde_json::Value;

/// Entries of one series at most, to begin with.
const ENTRIES_MAX: usize = 1000;
/// Entries that are always left.
const ENTRIES_MIN: usize = 16;
/// Of the whole, as JSON.
pub(super) const BYTES_MAX: usize = 2 << 20;

/// The data, perhaps thinned, and what was done to them as a sentence.
pub(super) fn bound(raw: &Value, bytes_max: usize) -> (Value, Option<String>) {
    let mut entries = ENTRIES_MAX;
    loop {
        let mut thinned = raw.clone();
        let removed = thin(&mut thinned, entries, true);
        if thinned.to_string().len() <= bytes_max {
            let said =
                removed.then(|| format!("raw series were thinned to at most {entries} entries"));
            return (thinned, said);
        }
        if entries <= ENTRIES_MIN {
            let said = format!(
                "raw data were left out: over {} MiB even when thinned",
                bytes_max >> 20
            );
            return (Value::Null, Some(said));
        }
        entries /= 4;
    }
}

/// Thins every long array; tells whether there was one.
fn thin(value: &mut Value, entries: usize, outermost: bool) -> bool {
    match value {
        Value::Array(all) => {
            let long = !outermost && all.len() > entries;
            if long {
                let step = all.len().div_ceil(entries);
                *all = std::mem::take(all).into_iter().step_by(step).collect();
            }
            all.iter_mut()
                .fold(long, |any, it| thin(it, entries, false) | any)
        }
        Value::Object(fields) => {
            (fields.values_mut()).fold(false, |any, it| thin(it, entries, false) | any)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_stay_and_series_are_thinned() {
        let series: Vec<u32> = (0..2500).collect();
        let runs: Vec<_> = (0..1500).map(|run| json!({ "run": run })).collect();
        let mut raw = Value::Array(runs);
        raw[7]["series"] = json!(series);
        let (bounded, said) = bound(&raw, BYTES_MAX);
        assert_eq!(bounded.as_array().unwrap().len(), 1500);
        let left = bounded[7]["series"].as_array().unwrap();
        assert_eq!((left.len(), &left[1]), (834, &json!(3)));
        assert!(said.unwrap().contains("1000"));
    }

    #[test]
    fn what_is_small_stays_and_what_cannot_be_small_goes() {
        let small = json!([{ "series": [1, 2, 3] }]);
        assert_eq!(bound(&small, BYTES_MAX), (small.clone(), None));
        let (gone, said) = bound(&small, 5);
        assert!(gone.is_null() && said.is_some());
        let large = json!([vec![1234; 10_000]]);
        let (thinned, _) = bound(&large, 2000);
        assert!(thinned.to_string().len() <= 2000);
    }
}
