//! Numbers as people read them: four digits that count, thousands apart.

/// A number in a table; a dash for none.
pub fn show(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        0.0 => 0,
        _ if magnitude >= 999.5 => 0,
        _ if magnitude >= 99.95 => 1,
        _ if magnitude >= 9.995 => 2,
        _ if magnitude >= 0.0995 => 3,
        _ => 4,
    };
    if magnitude != 0.0 && magnitude < 1e-3 {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    thousands(text)
}

/// A number at an axis: as few digits as the step between two needs.
pub(super) fn tick(value: f64, step: f64) -> String {
    if value != 0.0 && !(1e-4..1e9).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let decimals = (-(step.abs().log10() + 1e-9).floor()).clamp(0.0, 6.0) as usize;
    thousands(&format!("{value:.decimals$}"))
}

/// Commas between thousands, from five digits on.
fn thousands(text: &str) -> String {
    let (sign, rest) = text
        .strip_prefix('-')
        .map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    if whole.len() < 5 {
        return text.to_owned();
    }
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.12345, "0.123"),
            (0.05, "0.05"),
            (12.3456, "12.35"),
            (123.456, "123.5"),
            (9999.6, "10,000"),
            (1_234_567.8, "1,234,568"),
            (-12345.0, "-12,345"),
            (0.000_012, "1.20e-5"),
            (f64::NAN, "–"),
        ];
        for (value, wanted) in cases {
            assert_eq!(show(value), wanted);
        }
    }

    #[test]
    fn ticks_have_the_digits_that_tell_them_apart() {
        assert_eq!(tick(0.25, 0.05), "0.25");
        assert_eq!(tick(1500.0, 500.0), "1500");
        assert_eq!(tick(20_000.0, 5000.0), "20,000");
        assert_eq!(tick(0.0, 1.0), "0");
    }
}
