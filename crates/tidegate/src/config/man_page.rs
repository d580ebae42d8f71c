//! `tidegate.toml(5)`, made from the tables themselves, as docs/config.md is.

use clap_mangen::roff::{Inline, Roff, bold, roman};
use tidegate_core::admission::AdmissionKind;
use tidegate_core::units::{size_units, time_units};

use super::docs::{ADMISSION, default, flow, kind, sections};
use super::file::ConfigFile;
use super::setting::{Table as _, TableDocs};

/// The page.
pub(crate) fn page() -> String {
    let mut out = Roff::new();
    out.control(
        "TH",
        [
            "TIDEGATE.TOML",
            "5",
            "",
            concat!("tidegate ", env!("CARGO_PKG_VERSION")),
            "Tidegate",
        ],
    );
    introduction(&mut out);
    for (title, docs) in sections() {
        section(&mut out, title, &docs);
    }
    out.control("SH", ["FILES"]);
    out.control("TP", []);
    out.text([bold("/etc/tidegate/tidegate.toml")]);
    out.text([roman("The file of the service that the package installs.")]);
    out.control("SH", ["SEE ALSO"]);
    out.text([
        bold("tidegate"),
        roman("(1), "),
        bold("tidegate-check"),
        roman("(1), "),
        bold("tidegate-config"),
        roman("(1)"),
    ]);
    // An empty argument comes without its quotes.
    out.to_roff().replacen("TOML 5  ", "TOML 5 \"\" ", 1)
}

/// What the file is, and what holds for all of it.
fn introduction(out: &mut Roff) {
    out.control("SH", ["NAME"]);
    out.text([roman(
        "tidegate.toml - configuration of a front-end and of an agent",
    )]);
    out.control("SH", ["DESCRIPTION"]);
    let about = ConfigFile::docs().about;
    for paragraph in [
        "One TOML file, for a front-end (`tidegate run -c FILE`), an agent (`tidegate agent -c FILE`) or both. \
         `tidegate check FILE` says what is wrong with it, with line and column; `tidegate config FILE` prints it \
         with every default.",
        about,
        "Unknown keys are errors. Paths are relative to the file itself. SIGHUP and `tidegate reload` have a \
         front-end read the file again.",
        &format!(
            "Durations are a whole number and a unit ({}), sizes too ({}): `\"50ms\"`, `\"64KiB\"`.",
            time_units(),
            size_units()
        ),
    ] {
        out.control("PP", []);
        out.text(inlines(&flow(paragraph)));
    }
}

/// A table and its keys.
fn section(out: &mut Roff, title: &str, docs: &TableDocs) {
    out.control("SH", [title.replace('`', "").as_str()]);
    out.text(inlines(&flow(docs.about)));
    for key in &docs.keys {
        out.control("TP", []);
        let default = default(key).replace('`', "");
        let default = match default.as_str() {
            "required" | "not set" => default,
            _ => format!("default {default}"),
        };
        out.text([
            bold(key.name),
            roman(format!(" ({}; {default})", kind(key).replace('`', ""))),
        ]);
        out.text(inlines(&flow(key.about)));
    }
    if title == ADMISSION {
        out.control("PP", []);
        out.text([roman("The modes:")]);
        for (kind, name) in AdmissionKind::ALL {
            out.control("TP", []);
            out.text([bold(*name)]);
            out.text(inlines(kind.what()));
        }
    }
}

/// A comment's text: code is bold, a link is its text.
fn inlines(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate();
    let mut inlines: Vec<_> = pieces
        .map(|(number, piece)| match number % 2 {
            1 => bold(piece),
            _ => roman(without_targets(piece)),
        })
        .collect();
    if inlines.is_empty() {
        inlines.push(roman(""));
    }
    inlines
}

/// `[text](target)` as `text`.
fn without_targets(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, after)) = after.split_once(')') else {
            break;
        };
        let (lead, name) = before.rsplit_once('[').unwrap_or((before, ""));
        out.push_str(lead);
        out.push_str(name);
        rest = after;
    }
    out.push_str(rest);
    out
}

#[test]
fn a_link_is_its_text_and_code_is_bold() {
    let wanted = [
        roman("see the page, or "),
        bold("[a](b)"),
        roman(" of [x] (y)"),
    ];
    assert_eq!(
        inlines("see [the page](page.md#part), or `[a](b)` of [x] (y)"),
        wanted
    );
}
