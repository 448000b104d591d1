// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table: what is told of each row, one metric family a column.

use std::borrow::Borrow;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Metric families with the same labels.
#[derive(Debug)]
pub(super) struct Table<R: 'static> {
    /// Names of the labels.
    pub(super) labels: &'static [&'static str],
    pub(super) columns: &'static [Column<R>],
}

/// A metric family, and where its value is in a row.
#[derive(Debug)]
pub(super) struct Column<R> {
    pub(super) family: Family,
    /// None: this row has none.
    pub(super) value: fn(&R) -> Option<Value>,
}

/// What a metric family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Without its unit, and without `_total`.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// None: it counts things.
    pub(super) unit: Option<In>,
    /// A sentence without its stop.
    pub(super) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It never becomes less, but when the daemon begins anew.
    Counter,
    Gauge,
    Histogram,
    /// Its labels are all that there is.
    Info,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum In {
    Bytes,
    Seconds,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(u64),
    Seconds(f64),
    Histogram {
        /// Seconds.
        sum: f64,
        count: u64,
        /// By upper bound in seconds: how many more than at the one before.
        buckets: Vec<(f64, u64)>,
    },
    /// Of an info.
    Known,
}

/// Values of the labels of a row, in the order of their names.
pub(super) type Labels = Vec<String>;

/// A row of `labels` that has one more.
pub(super) fn with(labels: &Labels, more: &str) -> Labels {
    labels.iter().cloned().chain([more.to_owned()]).collect()
}

impl<R> Column<R> {
    pub(super) const fn new(family: Family, value: fn(&R) -> Option<Value>) -> Self {
        Self { family, value }
    }
}

impl Family {
    pub(super) const fn counter(name: &'static str, unit: Option<In>, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, unit, help }
    }

    pub(super) const fn gauge(name: &'static str, unit: Option<In>, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, unit, help }
    }

    pub(super) const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, unit: Some(In::Seconds), help }
    }

    pub(super) const fn info(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Info, unit: None, help }
    }
}

#[cfg(test)]
impl Family {
    /// As a query has it.
    pub(super) fn full_name(&self) -> String {
        let unit = match self.unit {
            Some(In::Bytes) => "_bytes",
            Some(In::Seconds) => "_seconds",
            None => "",
        };
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{unit}{end}", self.name)
    }
}

#[cfg(test)]
impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

impl<R> Table<R> {
    /// Writes all families that have a value.
    pub(super) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        rows: &[(Labels, impl Borrow<R>)],
    ) -> fmt::Result {
        let rows: Vec<(Vec<(&str, &str)>, &R)> = rows
            .iter()
            .map(|(values, row)| {
                let values = values.iter().map(String::as_str);
                (self.labels.iter().copied().zip(values).collect(), row.borrow())
            })
            .collect();
        for column in self.columns {
            let values = rows
                .iter()
                .filter_map(|(labels, row)| (column.value)(row).map(|value| (labels, value)));
            column.family.encode(encoder, values)?;
        }
        Ok(())
    }

    /// All that there are, with their labels.
    #[cfg(test)]
    pub(super) fn families(&self) -> impl Iterator<Item = (Family, &'static [&'static str])> {
        self.columns.iter().map(|column| (column.family, self.labels))
    }
}

impl Family {
    fn encode<'r>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        values: impl Iterator<Item = (&'r Vec<(&'r str, &'r str)>, Value)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let unit = self.unit.map(|unit| match unit {
            In::Bytes => Unit::Bytes,
            In::Seconds => Unit::Seconds,
        });
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let mut all = encoder.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        for (labels, value) in values {
            match value {
                Value::Known => all.encode_info(labels)?,
                Value::Number(number) if self.kind == Kind::Counter => {
                    all.encode_family(labels)?
                        .encode_counter::<NoLabelSet, _, u64>(&number, None)?;
                }
                Value::Number(number) => {
                    // Gauges are signed, and none of ours is so large.
                    let number = i64::try_from(number).unwrap_or(i64::MAX);
                    all.encode_family(labels)?.encode_gauge(&number)?;
                }
                Value::Seconds(time) if self.kind == Kind::Counter => {
                    all.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&time, None)?;
                }
                Value::Seconds(time) => all.encode_family(labels)?.encode_gauge(&time)?,
                Value::Histogram { sum, count, buckets } => {
                    let mut one = all.encode_family(labels)?;
                    one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// A value that is there.
pub(super) fn number(number: impl TryInto<u64>) -> Option<Value> {
    Some(Value::Number(number.try_into().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    const TABLE: Table<u64> = Table {
        labels: &["name"],
        columns: &[
            Column::new(Family::counter("a_read", Some(In::Bytes), "Bytes"), |row| number(*row)),
            Column::new(Family::gauge("b", None, "Things"), |row| {
                (*row != 7).then_some(Value::Number(*row))
            }),
            Column::new(Family::info("c", "What it is"), |_| Some(Value::Known)),
            Column::new(Family::gauge("d", None, "Nobody has it"), |_| None),
        ],
    };

    #[derive(Debug)]
    struct Rows(Vec<(Labels, u64)>);

    impl Collector for Rows {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            TABLE.encode(&mut encoder, &self.0)
        }
    }

    fn page(rows: &[(&str, u64)]) -> String {
        let rows = rows.iter().map(|(name, row)| (vec![(*name).to_owned()], *row)).collect();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Rows(rows)));
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn each_column_is_a_family_of_what_has_a_value() {
        let wanted = "\
# HELP a_read_bytes Bytes
# TYPE a_read_bytes counter
# UNIT a_read_bytes bytes
a_read_bytes_total{name=\"x\"} 7
a_read_bytes_total{name=\"y\"} 8
# HELP b Things
# TYPE b gauge
b{name=\"y\"} 8
# HELP c What it is
# TYPE c info
c_info{name=\"x\"} 1
c_info{name=\"y\"} 1
# EOF
";
        assert_eq!(page(&[("x", 7), ("y", 8)]), wanted);
    }

    /// Names of initiators, and of files, are whatever somebody has chosen.
    #[test]
    fn what_would_end_a_label_is_escaped() {
        let odd = "a\"b\\c\nd{e=\"f\"} 1\u{e9}\u{1f600}#";
        let said = page(&[(odd, 7)]);
        let line = said.lines().find(|line| line.starts_with("a_read_bytes_total")).unwrap();
        let wanted = "a\\\"b\\\\c\\nd{e=\\\"f\\\"} 1\u{e9}\u{1f600}#";
        assert_eq!(line, format!("a_read_bytes_total{{name=\"{wanted}\"}} 7"));
    }
}
