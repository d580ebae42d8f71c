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

/// Atoms of a class.
pub(super) const ATOMS: usize = 11;
/// Time in progress.
pub(super) const PROGRESS: usize = 0;
/// Mass over its life.
pub(super) const MASS: usize = 1;

/// The first of those behind the reply.
pub(super) const BEHIND: usize = 8;

/// Writes the atoms of a class, one behind the other, each as long as the window.
pub(super) fn write_atoms(series: &ClassSeries, window: Window, columns: &mut [f32]) {
    let bins = window.bins;
    let (sent, ended) = (&series.arrivals, &series.ends);
    columns[..bins].copy_from_slice(series.progress_in(window));
    columns[bins..2 * bins].copy_from_slice(series.mass_in(window));
    let means = [
        (ended, 0..=0),
        (ended, 1..=1),
        (ended, 2..=3),
        (sent, 0..=0),
        (sent, -1..=-1),
        (sent, -3..=-2),
        (ended, -2..=-2),
        (ended, -4..=-3),
        (ended, -8..=-5),
    ];
    for ((series, shifts), column) in means
        .into_iter()
        .zip(columns[2 * bins..].chunks_exact_mut(bins))
    {
        let part = 1.0 / shifts.clone().count() as f32;
        column.fill(0.0);
        for shift in shifts {
            let shifted = &series[MARGIN.wrapping_add_signed(shift)..][..bins];
            let pairs = column.iter_mut().zip(shifted);
            pairs.for_each(|(mean, x)| *mean += part * x);
        }
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
        let mut columns = vec![0.0; ATOMS * 50];
        write_atoms(&bins.read(0, window), window, &mut columns);
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
            let column = &columns[atom * 50..(atom + 1) * 50];
            for (bin, found) in column.iter().enumerate() {
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
