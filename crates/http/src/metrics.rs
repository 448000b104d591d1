// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metrics: rows of what was seen, and tables of what is told of each. docs/METRICS.md names
//! all of them, and a test holds it to that.

mod daemon;
mod limits;
mod luns;
mod reactors;
mod sessions;
mod table;
mod times;
mod visits;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::looks::Look;
use crate::looks::Seen;

/// How the metrics are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// Version 0.0.4 of Prometheus' own.
    Prometheus,
}

impl Format {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// All metrics of a look.
///
/// # Errors
/// The encoder fails.
pub(crate) fn page(look: &Arc<Look>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(Arc::clone(look))));
    let mut page = String::new();
    match format {
        Format::OpenMetrics => text::encode(&mut page, &registry)?,
        Format::Prometheus => prometheus_text::encode(&mut page, &registry)?,
    }
    Ok(page)
}

/// Encodes what was seen; no figure is kept in the registry.
#[derive(Debug)]
struct Page(Arc<Look>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let look = &*self.0;
        daemon::encode(look, &mut encoder)?;
        let Seen::Serving(serving) = &look.seen else { return Ok(()) };
        reactors::encode(look.about, serving, &mut encoder)?;
        visits::encode(serving, &mut encoder)?;
        luns::encode(look.about, serving, &mut encoder)?;
        sessions::encode(look.about, serving, &mut encoder)?;
        limits::encode(serving, &mut encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::table::Family;

    /// The rows of docs/METRICS.md, in its order.
    fn families() -> Vec<(Family, &'static [&'static str])> {
        let mut all = Vec::new();
        all.extend(super::daemon::BUILD.families());
        all.extend(super::daemon::READY.families());
        all.extend(super::daemon::CERTIFICATE.families());
        all.extend(super::daemon::DENIED.families());
        all.extend(super::daemon::ALL.families());
        all.extend(super::daemon::LEFT_OUT.families());
        all.extend(super::reactors::ANSWERS.families());
        all.extend(super::reactors::EACH.families());
        all.extend(super::reactors::DIGESTS.families());
        all.extend(super::reactors::PDUS.families());
        all.extend(super::reactors::LAYERS.families());
        all.extend(super::visits::EACH.families());
        all.extend(super::visits::REFUSED.families());
        all.extend(super::luns::ABOUT.families());
        all.extend(super::luns::EACH.families());
        all.extend(super::luns::WAITING.families());
        all.extend(super::luns::TRAFFIC.families());
        all.extend(super::luns::ERRORS.families());
        all.extend(super::luns::TIMES.families());
        all.extend(super::luns::FAILURES.families());
        all.extend(super::sessions::OF_TARGET.families());
        all.extend(super::sessions::EACH.families());
        all.extend(super::sessions::TIMES.families());
        all.extend(super::limits::EACH.families());
        all
    }

    /// What Prometheus and Grafana ask for is there.
    #[test]
    fn alerts_and_dashboard_name_metrics_that_there_are() {
        const RULES: &str = include_str!("../../../packaging/monitoring/lunwire.rules.yml");
        const TESTS: &str = include_str!("../../../packaging/monitoring/lunwire.test.yml");
        const DASHBOARD: &str = include_str!("../../../packaging/monitoring/grafana.json");
        let known: Vec<String> = families()
            .iter()
            .flat_map(|(family, _)| {
                let name = family.full_name();
                match family.kind.name() {
                    "histogram" => {
                        ["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")).to_vec()
                    }
                    _ => vec![name],
                }
            })
            .collect();
        for (file, text) in [("rules", RULES), ("tests", TESTS), ("dashboard", DASHBOARD)] {
            let words = text.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
            let named: Vec<&str> = words.filter(|word| word.starts_with("lunwire_")).collect();
            assert!(named.len() > 10, "{file}");
            for name in named {
                assert!(known.iter().any(|one| one == name), "{file}: no metric {name}");
            }
        }
        assert!(serde_json::from_str::<serde_json::Value>(DASHBOARD).is_ok());
    }

    #[test]
    fn the_page_of_the_documentation_names_all_metrics_and_no_other() {
        const PAGE: &str = include_str!("../../../docs/METRICS.md");
        let rows: Vec<String> = families()
            .iter()
            .map(|(family, labels)| {
                let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
                let (name, kind) = (family.full_name(), family.kind.name());
                format!("| `{name}` | {kind} | {} | {} |", labels.join(", "), family.help)
            })
            .collect();
        let told = PAGE.lines().filter(|line| line.starts_with("| `lunwire_"));
        let told: Vec<&str> = told.collect();
        assert!(told == rows, "docs/METRICS.md should have:\n{}", rows.join("\n"));
        let mut names: Vec<&str> = families().iter().map(|(family, _)| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len(), "each has a name of its own");
    }
}
