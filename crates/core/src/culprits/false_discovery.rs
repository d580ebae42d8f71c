//! p values of many, so that one in a hundred of those that are shown as found is chance.
//!
//! ```text
//! q_(i) = min over j >= i of  p_(j) m / j          p_(1) <= p_(2) <= .. <= p_(m)
//! ```
//!
//! Inputs: p values, of all classes and resources that are shown together; those never tested are 1.
//! Failure case: it holds for tests that are independent or depend on each other positively.
//! Source: FDR-1995.

/// Adjusts all in place.
pub(super) fn adjust(p: &mut [&mut f64]) {
    p.sort_by(|one, other| one.total_cmp(other));
    let many = p.len() as f64;
    let mut least = 1.0f64;
    for (place, p) in p.iter_mut().enumerate().rev() {
        least = least.min(**p * many / (place + 1) as f64);
        **p = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_the_paper() {
        let mut p = [0.01, 0.04, 0.03, 0.005, 0.5];
        adjust(&mut p.iter_mut().collect::<Vec<_>>());
        let expected = [0.025, 0.05, 0.05, 0.025, 0.5];
        let near = p.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-12);
        assert!(near, "{p:?}");
        adjust(&mut []);
    }
}
