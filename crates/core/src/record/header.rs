//! The C face of the layout, for writers in the kernel.

use std::fmt::Write;

use super::layout::{CPU_FIELDS, FIELDS, Field};
use super::{AGGREGATE_LINES, CPU_LINES_MAX, LINE_BYTES, MAGIC, Sources, VERSION};

/// The generated header, whole.
pub fn c_header() -> String {
    let mut text = String::from(
        "/* Generated from crates/core/src/record by `cargo xtask generate`. Do not edit. */\n\
         /* The Tidegate load record: little endian, 64-byte lines, sequence at both ends. */\n\
         #ifndef TIDEGATE_RECORD_H\n#define TIDEGATE_RECORD_H\n\n",
    );
    for (name, value) in [
        ("MAGIC", MAGIC as usize),
        ("VERSION", usize::from(VERSION)),
        ("LINE_BYTES", LINE_BYTES),
        ("AGGREGATE_LINES", AGGREGATE_LINES),
        ("CPU_LINES_MAX", CPU_LINES_MAX),
    ] {
        line(
            &mut text,
            format_args!("#define TIDEGATE_{name} {value:#x}u"),
        );
    }
    text.push('\n');
    for (source, name, what) in Sources::ALL {
        line(&mut text, format_args!("/* {what} */"));
        let bit = source.bits().trailing_zeros();
        line(
            &mut text,
            format_args!("#define TIDEGATE_SOURCE_{name} (1ull << {bit})"),
        );
    }
    structure(&mut text, "tidegate_record", FIELDS, AGGREGATE_LINES);
    structure(&mut text, "tidegate_cpu_line", CPU_FIELDS, 1);
    text.push_str("#endif\n");
    text
}

/// A packed struct whose sequence ends and gaps are named members, and its offset asserts.
fn structure(text: &mut String, name: &str, fields: &[Field], lines: usize) {
    line(text, format_args!("\nstruct {name} {{"));
    let mut at = 0;
    let mut rest = fields.iter().peekable();
    while at < lines * LINE_BYTES {
        let in_line = at % LINE_BYTES;
        let number = at / LINE_BYTES;
        if let Some(field) = rest.next_if(|field| field.offset == at) {
            let bits = field.size * 8;
            line(
                text,
                format_args!("    __u{bits} {}; /* {} */", field.name, field.what),
            );
            at += field.size;
        } else if in_line == 0 {
            line(text, format_args!("    __u32 head{number};"));
            at += 4;
        } else if in_line == LINE_BYTES - 4 {
            line(text, format_args!("    __u32 tail{number};"));
            at += 4;
        } else {
            let tail = number * LINE_BYTES + LINE_BYTES - 4;
            let end = rest.peek().map_or(tail, |field| field.offset.min(tail));
            line(text, format_args!("    __u8 reserved{at}[{}];", end - at));
            at = end;
        }
    }
    text.push_str("} __attribute__((packed, aligned(64)));\n");
    for field in fields {
        line(
            text,
            format_args!(
                "_Static_assert(__builtin_offsetof(struct {name}, {}) == {}, \"{}\");",
                field.name, field.offset, field.name
            ),
        );
    }
    let bytes = lines * LINE_BYTES;
    line(
        text,
        format_args!("_Static_assert(sizeof(struct {name}) == {bytes}, \"{name}\");"),
    );
    text.push('\n');
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    text.write_fmt(line).unwrap_or_default();
    text.push('\n');
}
