// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables as Markdown on stdout, and all figures as JSON.

use crate::timing::Effort;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;

/// Where the JSON goes.
pub(crate) const FILE: &str = "target/bench/crc.json";

/// A size and what was measured for it.
#[derive(Debug)]
pub(crate) struct Row {
    size: usize,
    rates: Vec<f64>,
    note: String,
    ratios: Vec<(&'static str, f64, f64)>,
}

impl Row {
    pub(crate) fn new(size: usize, rates: Vec<f64>) -> Self {
        Self { size, rates, note: String::new(), ratios: Vec::new() }
    }

    /// Something about the row beside its size.
    pub(crate) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// A ratio of two of the rates, and what it must be at least; 0 for nothing.
    pub(crate) fn ratio(mut self, name: &'static str, value: f64, minimum: f64) -> Self {
        self.ratios.push((name, value, minimum));
        self
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    machine: String,
    tables: Vec<Value>,
}

impl Report {
    pub(crate) fn new(effort: Effort) -> Self {
        let machine = processor();
        println!(
            "{machine}; best kernel: {}; medians of {} alternating runs of {} ms, one processor.\n",
            crc::tier(),
            effort.runs,
            effort.ms_each
        );
        Self { machine, tables: Vec::new() }
    }

    pub(crate) fn table(&mut self, title: &str, names: Vec<String>, rows: Vec<Row>) {
        let ratios: Vec<&str> =
            rows.first().map_or(vec![], |row| row.ratios.iter().map(|ratio| ratio.0).collect());
        println!("### {title}\n\n| bytes | {} | {} |", names.join(" | "), ratios.join(" | "));
        println!("|{}", "---|".repeat(1 + names.len() + ratios.len()));
        for row in &rows {
            let rates = row.rates.iter().map(|rate| format!("{rate:.1}"));
            let ratios = row.ratios.iter().map(|(_, value, minimum)| verdict(*value, *minimum));
            let cells: Vec<String> = rates.chain(ratios).collect();
            println!("| {} {} | {} |", row.size, row.note, cells.join(" | "));
        }
        println!();
        let rows: Vec<Value> = rows.iter().map(|row| as_json(&names, row)).collect();
        self.tables.push(json!({ "title": title, "rows": rows }));
    }

    pub(crate) fn write(&self) -> io::Result<()> {
        if let Some(folder) = Path::new(FILE).parent() {
            fs::create_dir_all(folder)?;
        }
        let all = json!({
            "machine": self.machine,
            "kernel": crc::tier().name(),
            "unit": "GB/s",
            "tables": self.tables,
        });
        fs::write(FILE, format!("{all:#}\n"))?;
        println!("JSON: {FILE}");
        Ok(())
    }
}

fn verdict(value: f64, minimum: f64) -> String {
    if minimum == 0.0 {
        return format!("{value:.2}");
    }
    let is_met = value >= minimum;
    // A figure that is rounded to what it misses says what is not so.
    let is_told =
        |shown: &String| shown.parse().is_ok_and(|shown: f64| (shown >= minimum) == is_met);
    let shown = (2..=6).map(|digits| format!("{value:.digits$}")).find(is_told);
    let shown = shown.unwrap_or_else(|| value.to_string());
    match is_met {
        true => format!("{shown} (at least {minimum:.2})"),
        false => format!("**{shown}** (at least {minimum:.2}: MISSED)"),
    }
}

fn as_json(names: &[String], row: &Row) -> Value {
    let rates: serde_json::Map<String, Value> =
        names.iter().zip(&row.rates).map(|(name, rate)| (name.clone(), json!(rate))).collect();
    let ratios: Vec<Value> = row
        .ratios
        .iter()
        .map(|(name, value, minimum)| json!({"name": name, "value": value, "at_least": minimum}))
        .collect();
    json!({"bytes": row.size, "note": row.note, "rates": rates, "ratios": ratios})
}

/// What the system says about the processor.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": ")).map(|(_, name)| name.to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_not_rounded_to_what_is_wanted() {
        assert_eq!(verdict(1.096, 1.1), "**1.096** (at least 1.10: MISSED)");
        assert_eq!(verdict(1.05, 1.1), "**1.05** (at least 1.10: MISSED)");
        assert_eq!(verdict(1.1, 1.1), "1.10 (at least 1.10)");
        assert_eq!(verdict(3.0, 0.0), "3.00");
    }
}
