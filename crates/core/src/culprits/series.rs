//! Arithmetic on series of bins that several steps share.

/// Parts of a sum that are added up side by side: so the compiler uses vector instructions, and the
/// order of additions, and with it every bit of the result, is the same on all machines.
pub(super) const LANES: usize = 8;
/// Numbers of a vector that every machine of 64 bits has instructions for.
pub(super) const VECTOR: usize = 4;

/// Sum of products. Series are of one length; what one is longer is left out.
pub(super) fn dot(one: &[f32], other: &[f32]) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let (ones, others) = (one.chunks_exact(LANES), other.chunks_exact(LANES));
    let rest = ones.remainder().iter().zip(others.remainder());
    let rest: f64 = rest.map(|(x, y)| f64::from(x * y)).sum();
    for (xs, ys) in ones.zip(others) {
        for ((lane, x), y) in lanes.iter_mut().zip(xs).zip(ys) {
            *lane += x * y;
        }
    }
    lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>() + rest
}

/// Sums of products of one series with each of four, all as long as it: the one is read once.
pub(super) fn dots(one: &[f32], others: [&[f32]; 4]) -> [f64; 4] {
    let whole = one.len() - one.len() % LANES;
    let mut lanes = [[0.0f32; LANES]; 4];
    let [a, b, c, d] = others.map(|other| other[..whole].chunks_exact(LANES));
    for ((((x, a), b), c), d) in one.chunks_exact(LANES).zip(a).zip(b).zip(c).zip(d) {
        for (lanes, other) in lanes.iter_mut().zip([a, b, c, d]) {
            for ((lane, x), y) in lanes.iter_mut().zip(x).zip(other) {
                *lane += x * y;
            }
        }
    }
    let mut sums = lanes.map(|lanes| lanes.iter().map(|lane| f64::from(*lane)).sum());
    for (sum, other) in sums.iter_mut().zip(others) {
        let rest = one[whole..].iter().zip(&other[whole..]);
        *sum += rest.map(|(x, y)| f64::from(x * y)).sum::<f64>();
    }
    sums
}

/// Correlation of two series whose means are zero; zero if one of them is constant.
pub(super) fn correlation(one: &[f32], other: &[f32]) -> f64 {
    normalized(dot(one, other), dot(one, one), dot(other, other))
}

/// A correlation from the sums of products of one with the other and of each with itself.
pub(super) fn normalized(product: f64, one: f64, other: f64) -> f64 {
    let scale = (one * other).sqrt();
    match scale > f64::MIN_POSITIVE {
        true => product / scale,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_product_takes_in_the_rest_of_a_lane() {
        let ones = vec![1.0f32; 11];
        let numbers: Vec<f32> = (1..=11u8).map(f32::from).collect();
        assert_eq!(dot(&ones, &numbers), 66.0);
        assert_eq!(dot(&[], &[]), 0.0);
        let shifted: Vec<_> = numbers.iter().map(|x| x + 1.0).collect();
        let all = dots(&ones, [&ones, &numbers, &shifted, &ones]);
        assert_eq!(all, [11.0, 66.0, 77.0, 11.0]);
    }

    #[test]
    fn a_constant_correlates_with_nothing() {
        assert_eq!(correlation(&[0.0; 4], &[1.0, -1.0, 1.0, -1.0]), 0.0);
        let wave = [1.0, -1.0, 1.0, -1.0];
        assert!((correlation(&wave, &[2.0, -2.0, 2.0, -2.0]) - 1.0).abs() < 1e-9);
    }
}
