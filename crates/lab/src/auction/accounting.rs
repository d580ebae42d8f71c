//! The database's own account of its statements (`pg_stat_statements`).
//!
//! It knows time on the clock, not CPU time: a statement that waits for the CPU takes longer. What a
//! page really costs comes with each answer ([`super::CPU_HEADER`]); this stands beside it.

use serde::{Deserialize, Serialize};

/// Letters of a statement that are kept.
const TEXT_MAX: usize = 400;

/// Begins the account anew.
pub const RESET: &str = "select pg_stat_statements_reset()";
/// The statements that took most time, as JSON, one line each.
pub const STATEMENTS: &str = "select json_build_object('query', regexp_replace(query, '\\s+', ' ', 'g'), 'calls', calls, \
     'total_ms', total_exec_time, 'rows', rows) from pg_stat_statements order by total_exec_time desc limit 20";

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// Its text, without constants.
    pub query: String,
    /// How often it was carried out.
    pub calls: u64,
    /// Time that this took, on the clock.
    pub total_ms: f64,
    /// Rows that came of it.
    pub rows: u64,
}

/// What the database answered to [`STATEMENTS`]; lines that are none are left out.
#[must_use]
pub fn statements(answer: &str) -> Vec<Statement> {
    let read = |line: &str| serde_json::from_str::<Statement>(line).ok();
    let cut = |mut statement: Statement| {
        statement.query = statement.query.chars().take(TEXT_MAX).collect();
        statement
    };
    answer.lines().filter_map(read).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_line_by_line() {
        let answer = "{\"query\" : \"select $1\", \"calls\" : 3, \"total_ms\" : 1.5, \"rows\" : 3}\nnotice\n";
        let read = statements(answer);
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].calls, read[0].rows), (3, 3));
        assert!((read[0].total_ms - 1.5).abs() < 1e-9);
    }
}
