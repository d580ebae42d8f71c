//! Step 3: eleven shapes that a request's work can have.
//!
//! ```text
//! 0       time in progress                     seconds: work goes with the time that it takes
//! 1       mass over its life                   one per request: work goes with their number
//! 2 3 4   the last 0-100, 100-200, 200-400 ms  before it ended
//! 5 6 7   the first 0-100, 100-200, 200-400 ms after it was sent
//! 8 9 10  100-200, 200-400, 400-800 ms         after it ended: work behind the reply
//! ```
//!
//! Time in progress alone fails when a resource is crowded, since two in flight then use what one
//! does; mass alone takes requests of unequal work for equal ones and tells 30 % too little. Together
//! the work of a request is a + u x its duration. The rest is for work that lies at one end of its life.
//!
//! Inputs: a class's bins. Failure case: work that comes more than 0.8 s after the reply has no atom.
//! Source: measured; without the last nine recall is three points lower.

use super::bins::{ClassSeries, MARGIN, Window};
use super::series::VECTOR;

/// Atoms of a class.
pub(super) const ATOMS: usize = 11;
/// Time in progress.
pub(super) const PROGRESS: usize = 0;
/// Mass over its life.
pub(super) const MASS: usize = 1;

/// The first of those behind the reply.
pub(super) const BEHIND: usize = 8;

/// All atoms of a class in one bin, filled up with zeros to whole vectors.
pub(super) type Row = [f32; ATOMS.next_multiple_of(VECTOR)];

/// Writes the atoms of a class, a row for each bin of the window.
pub(super) fn write_atoms(series: &ClassSeries, window: Window, rows: &mut Vec<Row>) {
    let around = window.bins + 2 * MARGIN;
    let (sent, ended) = (&series.arrivals[..around], &series.ends[..around]);
    let (progress, mass) = (series.progress_in(window), series.mass_in(window));
    let mean = |series: &[f32]| series.iter().sum::<f32>() / series.len() as f32;
    rows.clear();
    for (bin, (progress, mass)) in progress.iter().zip(mass).enumerate() {
        let at = bin + MARGIN;
        rows.push([
            *progress,
            *mass,
            ended[at],
            ended[at + 1],
            mean(&ended[at + 2..at + 4]),
            sent[at],
            sent[at - 1],
            mean(&sent[at - 3..at - 1]),
            ended[at - 2],
            mean(&ended[at - 4..at - 2]),
            mean(&ended[at - 8..at - 4]),
            0.0,
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::bins::Bins;
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn each_atom_lies_where_its_name_says() {
        let mut bins = Bins::new(1);
        // From bin 20 to the end of bin 29, exactly.
        bins.add(
            0,
            Timestamp::from_millis(2000),
            Timestamp::from_millis(3000),
        );
        let window = Window { first: 0, bins: 50 };
        let mut rows = Vec::new();
        write_atoms(&bins.read(0, window), window, &mut rows);
        assert_eq!(rows.len(), 50);
        let expected = [
            (20, 29, 0.1),
            (20, 29, 0.1),
            (29, 29, 1.0),
            (28, 28, 1.0),
            (26, 27, 0.5),
            (20, 20, 1.0),
            (21, 21, 1.0),
            (22, 23, 0.5),
            (31, 31, 1.0),
            (32, 33, 0.5),
            (34, 37, 0.25),
        ];
        for (atom, (from, to, value)) in expected.into_iter().enumerate() {
            for (bin, row) in rows.iter().enumerate() {
                let found = row[atom];
                let wanted: f32 = if (from..=to).contains(&bin) {
                    value
                } else {
                    0.0
                };
                assert!(
                    (found - wanted).abs() < 1e-5,
                    "atom {atom}, bin {bin}: {found}"
                );
            }
        }
    }
}
