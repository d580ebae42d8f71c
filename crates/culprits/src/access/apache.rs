//! Apache's `LogFormat`.
//!
//! `%t` and its variants are the start of a request, but for those that begin with `end:`; `%D` and
//! `%T` go from the start until the line is written. Source: the documentation of `mod_log_config`.

use super::Moment;
use super::template::{Field, Item, Template, Time};
use crate::time::{COMMON, SECOND};

/// Reads a format string, or the line of a configuration that has it.
pub(super) fn compile(text: &str) -> Result<Template, String> {
    let text = of_line(text);
    let mut items = Vec::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        items.push(Item::Literal(rest[..at].to_owned()));
        let (item, after) = directive(&rest[at + 1..])?;
        items.push(item);
        rest = after;
    }
    items.push(Item::Literal(rest.to_owned()));
    Template::new(items)
}

/// The format itself: `LogFormat "%h \"%r\"" name` has quotes around it and within.
fn of_line(text: &str) -> String {
    let quoted = match text.strip_prefix("LogFormat") {
        Some(rest) => rest.trim_start().strip_prefix('"'),
        None => None,
    };
    let inner = match quoted {
        Some(rest) => rest.rsplit_once('"').map_or(rest, |(inner, _)| inner),
        None => text,
    };
    inner.replace("\\\"", "\"").replace("\\t", "\t")
}

/// What follows a `%`, and what follows that.
fn directive(text: &str) -> Result<(Item, &str), String> {
    // `%>s`, `%<s`, `%!200,304{Referer}i`: which request, and for which status.
    let plain =
        text.trim_start_matches(|letter: char| "<>!,".contains(letter) || letter.is_ascii_digit());
    let (argument, rest) = match plain.strip_prefix('{') {
        Some(rest) => match rest.split_once('}') {
            Some((argument, rest)) => (Some(argument), rest),
            None => return Err(format!("`%{{{rest}`: the `}}` is missing")),
        },
        None => (None, plain),
    };
    let rest = rest.trim_start_matches(['<', '>']);
    let mut letters = rest.chars();
    let letter = letters.next().ok_or("the format ends with a `%`")?;
    let field = match (letter, argument) {
        ('%', None) => return Ok((Item::Literal("%".into()), letters.as_str())),
        ('r', None) => Field::Request,
        ('m', None) => Field::Method,
        ('U', None) => Field::Target,
        ('q', None) => Field::Query,
        ('v' | 'V', None) => Field::Site,
        ('i', Some(name)) if name.eq_ignore_ascii_case("host") => Field::Site,
        ('D', None) => Field::Total(1000),
        ('T', None | Some("s")) => Field::Total(SECOND),
        ('T', Some("ms")) => Field::Total(SECOND / 1000),
        ('T', Some("us")) => Field::Total(1000),
        ('t', argument) => time(argument.unwrap_or_default()),
        // `%^FB` and the like have two letters more.
        ('^', _) => {
            let rest = letters.as_str();
            let after = rest.get(2..).ok_or("`%^` needs two letters more")?;
            return Ok((Item::Field(Field::Skip), after));
        }
        (letter, _) if letter.is_ascii_alphabetic() => Field::Skip,
        (letter, _) => return Err(format!("`%{letter}` is no directive of Apache")),
    };
    Ok((Item::Field(field), letters.as_str()))
}

fn time(argument: &str) -> Field {
    let (moment, argument) = match argument.split_once(':') {
        Some(("begin", rest)) => (Moment::Start, rest),
        Some(("end", rest)) => (Moment::End, rest),
        Some(_) | None => (Moment::Start, argument),
    };
    let epoch = |unit| Field::Time(Time::Epoch(unit), moment);
    match argument {
        "" => Field::Time(Time::Format(format!("[{COMMON}]")), moment),
        "sec" | "%s" => epoch(SECOND),
        "msec" => epoch(SECOND / 1000),
        "usec" => epoch(1000),
        "msec_frac" => Field::Fraction(SECOND / 1000),
        "usec_frac" => Field::Fraction(1000),
        format => Field::Time(Time::Format(format.to_owned()), moment),
    }
}
