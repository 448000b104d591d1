// SPDX-License-Identifier: Apache-2.0 OR MIT
//! By what a disk is known to be the same one over several paths.
//!
//! Of the designators of a unit (SPC-4 §7.8.6) the best one counts: NAA, EUI-64, SCSI name, T10
//! vendor ID, in this order. A disk that has none of them is not known. An NAA without a company is
//! one that each target counts from one: it tells disks of one target apart and no more.

use std::fmt;

use wire::scsi::vpd;
use wire::scsi::vpd::Association;
use wire::scsi::vpd::Designator;

/// The best name of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(Designator);

impl Name {
    /// Of all that a unit says.
    pub(crate) fn best_of(all: &[Designator]) -> Option<Self> {
        let ranked = all.iter().filter_map(|one| Some((rank(one)?, one)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, best)| Self(best.clone()))
    }

    /// Whether no other unit in the world has it: what a vendor calls it may be counted from one.
    pub(crate) fn is_world_wide(&self) -> bool {
        !self.is_counted() && !matches!(self.0, Designator::T10Vendor(_))
    }

    /// Whether it is sure to be one that a target has counted.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(&self.0, Designator::Naa(naa) if !vpd::is_world_wide(naa))
    }

    /// Whether a unit that says all this is the one.
    pub(crate) fn is_among(&self, all: &[Designator]) -> bool {
        all.contains(&self.0)
    }
}

/// The lower the better; a longer NAA or EUI tells more than a shorter one.
fn rank(designator: &Designator) -> Option<(u8, usize)> {
    let longest_first = |value: &[u8]| usize::MAX - value.len();
    Some(match designator {
        // Locally assigned ones (3h) are unique nowhere.
        Designator::Naa(naa) if naa.first().is_none_or(|first| first >> 4 == 3) => return None,
        Designator::Naa(naa) if vpd::is_world_wide(naa) => (0, longest_first(naa)),
        Designator::Eui(eui) => (1, longest_first(eui)),
        Designator::ScsiName { of: Association::LogicalUnit, .. } => (2, 0),
        Designator::Naa(naa) => (3, longest_first(naa)),
        Designator::T10Vendor(_) => (4, 0),
        _ => return None,
    })
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match &self.0 {
            Designator::Naa(naa) => {
                f.write_str("naa.")?;
                hex(f, naa)
            }
            Designator::Eui(eui) => {
                f.write_str("eui.")?;
                hex(f, eui)
            }
            Designator::ScsiName { name, .. } => write!(f, "{}", name.escape_ascii()),
            Designator::T10Vendor(text) => write!(f, "t10.{}", text.trim_ascii().escape_ascii()),
            _ => f.write_str("no name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_counts() {
        let t10 = Designator::T10Vendor(b"LUNWIRE disk-1".to_vec());
        let eui = Designator::Eui(vec![1; 8]);
        let (short, long) = (Designator::Naa(vec![0x50; 8]), Designator::Naa(vec![0x60; 16]));
        let local = Designator::Naa(vec![0x30; 8]);
        let port = Designator::RelativeTargetPort(1);
        let best = |all: &[&Designator]| {
            let all: Vec<Designator> = all.iter().copied().cloned().collect();
            Name::best_of(&all).map(|name| name.to_string())
        };
        assert_eq!(best(&[&port, &local]), None);
        assert_eq!(best(&[&local, &t10]).as_deref(), Some("t10.LUNWIRE disk-1"));
        assert_eq!(best(&[&t10, &eui]).as_deref(), Some("eui.0101010101010101"));
        assert_eq!(best(&[&eui, &short]).as_deref(), Some("naa.5050505050505050"));
        assert!(best(&[&short, &long]).is_some_and(|name| name.starts_with("naa.6060")));
        let name = Name::best_of(std::slice::from_ref(&short)).expect("one");
        assert!(name.is_among(&[t10, short]) && !name.is_among(&[long, eui]));
    }

    #[test]
    fn a_name_that_no_company_gave_is_one_within_a_target() {
        let of_tgtd = Designator::Naa([&[0x60, 0, 0, 0][..], &[0; 3], &[0x0e; 9]].concat());
        let t10 = Designator::T10Vendor(b"IET     00010001".to_vec());
        let eui = Designator::Eui(vec![1; 8]);
        let best = |all: &[&Designator]| {
            let all: Vec<Designator> = all.iter().copied().cloned().collect();
            Name::best_of(&all).expect("a name")
        };
        let name = best(&[&t10, &of_tgtd]);
        assert!(name.to_string().starts_with("naa.6000"));
        assert!(name.is_counted() && !name.is_world_wide());
        assert!(!best(&[&t10]).is_counted() && !best(&[&t10]).is_world_wide());
        assert!(best(&[&of_tgtd, &eui]).to_string().starts_with("eui."));
    }
}
